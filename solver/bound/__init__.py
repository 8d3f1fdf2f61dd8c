"""The best any schedule can do: column generation over routes, and the certificate its prices make."""

from solver.bound.certificate import Bound, certify, prove
from solver.bound.columns import Columns
from solver.bound.generation import Fractional, generate
from solver.bound.problem import Commodities, Problem, Shape

__all__ = ["Bound", "Columns", "Commodities", "Fractional", "Problem", "Shape", "certify", "generate", "prove"]

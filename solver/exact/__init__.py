"""Exact schedules of few rounds by integer programming, for up to 8 ranks, or 16 that look alike to the machine."""

from solver.exact.answer import ExactSolved, solve
from solver.exact.clock import Clock
from solver.exact.fastest import least_time
from solver.exact.search import Exact, Objective, Search
from solver.exact.slots import least_rounds, least_slots

__all__ = ["Clock", "Exact", "ExactSolved", "Objective", "Search", "least_rounds", "least_slots", "least_time", "solve"]

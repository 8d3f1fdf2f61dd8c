"""Exact schedules of few rounds by integer programming, for up to 8 ranks, or 16 that look alike to the machine."""

from solver.exact.answer import ExactSolved, solve
from solver.exact.clock import Clock
from solver.exact.search import Exact, Objective, least_rounds, least_slots, least_time

__all__ = ["Clock", "Exact", "ExactSolved", "Objective", "least_rounds", "least_slots", "least_time", "solve"]

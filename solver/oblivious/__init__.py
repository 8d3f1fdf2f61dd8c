"""Oblivious alltoalls: routes fixed beforehand that are good whatever the byte counts are."""

from solver.oblivious.guarantee import Guarantee, guarantee, least_for_hardest
from solver.oblivious.hose import Hose
from solver.oblivious.routing import Oblivious, best_worst_case

__all__ = ["Guarantee", "Hose", "Oblivious", "best_worst_case", "guarantee", "least_for_hardest"]

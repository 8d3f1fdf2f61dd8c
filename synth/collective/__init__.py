"""Collectives: what is asked of a group, and the cheapest way to deliver one block under link prices."""

from synth.collective.demand import (
    EVERY,
    Blocks,
    Collective,
    Demand,
    matrix_from_document,
    matrix_to_document,
    parse_collective,
)

__all__ = [
    "EVERY",
    "Blocks",
    "Collective",
    "Demand",
    "matrix_from_document",
    "matrix_to_document",
    "parse_collective",
]

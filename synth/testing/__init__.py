"""For tests of synth and of what is built on it: generated topologies and demands, and assertions about plans.

Needs hypothesis.
"""

from synth.testing.assertions import assert_plan_implements
from synth.testing.strategies import byte_matrices, demands, topologies

__all__ = ["assert_plan_implements", "byte_matrices", "demands", "topologies"]

"""Whether a plan is right, and whether its stated bound is proven."""

from synth.verifier.certificate import latency_bound_ns, proven_bound_ns
from synth.verifier.rules import bound_checkable, verify, verify_claim
from synth.verifier.violation import Violation

__all__ = ["Violation", "bound_checkable", "latency_bound_ns", "proven_bound_ns", "verify", "verify_claim"]

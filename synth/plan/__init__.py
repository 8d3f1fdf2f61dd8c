"""Plans: the value, its document, symmetric expansion, slices and lowering to rank programs."""

from synth.plan.codec import dumps, from_document, load, save, to_document
from synth.plan.ir import Certificate, Chunks, Plan, Predicted, Symmetry, Transfers
from synth.plan.slices import load_slice, slice_plan
from synth.plan.symmetry import expand, group_elements

__all__ = [
    "Certificate",
    "Chunks",
    "Plan",
    "Predicted",
    "Symmetry",
    "Transfers",
    "dumps",
    "expand",
    "from_document",
    "group_elements",
    "load",
    "load_slice",
    "save",
    "slice_plan",
    "to_document",
]

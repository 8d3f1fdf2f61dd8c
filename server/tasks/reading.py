"""What all tasks share."""

from __future__ import annotations

import json
from collections.abc import Callable

from synth import topology
from synth.documents import Json
from synth.plan import Plan
from synth.topology import Topology

Report = Callable[[Json], None]
"""Takes the progress so far: {incumbent_seconds?, bound_seconds?, gap?}."""


def read_text(text: str) -> Topology:
    """The topology of a document's text."""
    return topology.from_document(json.loads(text))


def unsaid(read: Plan, size: int | None) -> int | None:
    """The size a stated bound is for, where the plan itself does not say."""
    return None if read.predicted is not None or read.demand is not None else size

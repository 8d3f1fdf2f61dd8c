"""Prints how public algorithms do on the machines they were made for: ``python -m tests.formats.table``.

Every program is imported and priced with the rounds model, once as one slice and once with the cheapest number of
segments, beside what synth's own solver makes of the same collective, size and machine, and the proven bound.
"""

from __future__ import annotations

import sys
from pathlib import Path

import synth
from synth.errors import InputError, SynthError
from synth.formats import msccl_xml
from synth.topology import catalog
from tests.conftest import SHARED

PROGRAMS = (
    ("sccl_dgx1_Allgather_ls.xml", "ndv2x1"),
    ("sccl_Allgather_n8-DGX1-steps2_rounds3_chunks2.xml", "ndv2x1"),
    ("sccl_Allgather_n8-DGX1-steps3_rounds7_chunks6.xml", "ndv2x1"),
    ("taccl_ndv2_n1_Allgather_1MB.xml", "ndv2x1"),
    ("taccl_ndv2_n2_Allgather_1MB.xml", "ndv2x2"),
    ("forestcoll_a100_1x8_allreduce_inplace_k1.xml", "hgx-a100x1"),
    ("forestcoll_a100_1x8_reduce_scatter_inplace_k1.xml", "hgx-a100x1"),
    ("forestcoll_a100_2x8_allgather_inplace_k1.xml", "hgx-a100x2"),
    ("forestcoll_a100_2x8_allreduce_inplace_k1.xml", "hgx-a100x2"),
    ("forestcoll_mi250_1x16_allreduce_inplace_k1.xml", "mi250x1"),
    ("forestcoll_mi250_1x16_reduce_scatter_inplace_k1.xml", "mi250x1"),
    ("allreduce_a100_ring_8_ch4_i8.xml", "hgx-a100x1"),
    ("alltoall_two_step_2x8.xml", "hgx-a100x2"),
)
SIZES = {"1 MB": 10**6, "1 GB": 10**9}


def rows(folder: Path, time_limit: float) -> list[str]:
    """The table's rows, in Markdown."""
    lines = []
    for name, machine in PROGRAMS:
        topology = catalog.build(machine)
        algorithm = msccl_xml.load(folder / name)
        for label, size in SIZES.items():
            try:
                whole = msccl_xml.to_plan(algorithm, topology=topology, bytes=size, segments=1).plan
                best = msccl_xml.to_plan(algorithm, topology=topology, bytes=size).plan
            except InputError as error:
                lines.append(f"| {name} | {machine} | {label} | {error.message} |")
                break
            try:
                ours = synth.solve(topology, whole.collective.value, bytes=size, time_limit=time_limit)
            except SynthError as error:
                print(f"{name}: {error.message}", file=sys.stderr)
                continue
            assert whole.predicted is not None
            assert best.predicted is not None
            assert ours.plan.predicted is not None
            assert ours.plan.certificate is not None
            one, many, solved = (plan.predicted.seconds[0] * 1e6 for plan in (whole, best, ours.plan))  # type: ignore[union-attr]
            bound = ours.plan.certificate.best_bound_ns * 1e-3
            lines.append(
                f"| {name.removesuffix('.xml')} | {machine} | {label} | {one:.1f} | {many:.1f} (S={best.segments}) | "
                f"{solved:.1f} | {bound:.1f} | {many / bound - 1:.1%} | {solved / bound - 1:.1%} |"
            )
    return lines


if __name__ == "__main__":
    print("| program | machine | size | one slice, us | segments, us | synth, us | bound, us | gap | synth's gap |")
    print("|---|---|---|---|---|---|---|---|---|")
    print("\n".join(rows(SHARED / "data/msccl_xml", 20.0)))

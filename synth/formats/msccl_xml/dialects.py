"""What each runtime asks of a file before it loads it.

**v1** is microsoft/msccl, **v2** is Azure/msccl-executor-nccl and RCCL. Both skip a file they do not accept, v2
without a word, and run the library's own collective instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from synth.formats.msccl_xml.algorithm import NOBODY, Algorithm, Kind, Threadblock

_COMMON = ("proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace")
_V1_COLLECTIVES = ("allreduce", "allgather", "reduce", "broadcast", "alltoall", "reduce_scatter", "custom")
_V2_COLLECTIVES = (
    *("reduce", "broadcast", "allreduce", "reducescatter", "allgather", "send", "recv", "gather", "scatter"),
    *("alltoall", "alltoallv"),
)

MAX_COUNT = 71
"""Chunks of one step in v2."""
MAX_STEPS = 255
"""Steps of one threadblock."""
MAX_CHANNELS = 32
MAX_THREADBLOCKS = 216
"""Threadblocks of one GPU in v1."""
MAX_CHILDREN = 1024
MAX_ELEMENTS = 4096
"""Elements of one GPU that a runtime stores."""


class Dialect(StrEnum):
    """Which runtime a file is for."""

    V1 = "v1"
    V2 = "v2"

    @property
    def runtime(self) -> str:
        """Its name."""
        return "msccl (v1)" if self is Dialect.V1 else "msccl-executor-nccl (v2)"

    @property
    def attributes(self) -> tuple[str, ...]:
        """Those that ``algo`` must have."""
        return ("name", *_COMMON) if self is Dialect.V1 else (*_COMMON, "outofplace", "minBytes", "maxBytes")

    @property
    def collectives(self) -> tuple[str, ...]:
        """Spellings it knows."""
        return _V1_COLLECTIVES if self is Dialect.V1 else _V2_COLLECTIVES


def refusals(algorithm: Algorithm, dialect: Dialect) -> Iterator[str]:
    """Why the runtime would not load the file, each reason a verb phrase; none where it would."""
    missing = [key for key in dialect.attributes if key not in algorithm.attributes]
    if missing:
        yield f"refuses <algo> without {', '.join(missing)}"
    if algorithm.collective not in dialect.collectives:
        yield f"does not know the collective {algorithm.collective!r}; it knows {', '.join(dialect.collectives)}"
    if algorithm.protocol not in ("Simple", "LL", "LL128"):
        yield f"does not know the protocol {algorithm.protocol!r}; it knows Simple, LL, LL128"
    given = algorithm.attributes.get("ngpus")
    if given is not None and int(given) != algorithm.ranks:
        yield f"expects {given} GPUs (ngpus), but the file describes {algorithm.ranks}"
    if algorithm.channels > MAX_CHANNELS:
        yield f"has at most {MAX_CHANNELS} channels, not {algorithm.channels}"
    for fault in algorithm.faults:
        yield f"cannot parse {fault}"
    yield from _sizes(algorithm, dialect)


def _sizes(algorithm: Algorithm, dialect: Dialect) -> Iterator[str]:
    told: set[str] = set()
    for gpu in algorithm.gpus:
        elements = 1 + sum(1 + len(block.steps) for block in gpu.threadblocks)
        reasons = []
        if elements > MAX_ELEMENTS or len(gpu.threadblocks) > MAX_CHILDREN:
            reasons.append(f"stores at most {MAX_ELEMENTS} elements of a GPU, {MAX_CHILDREN} in each")
        if dialect is Dialect.V1 and len(gpu.threadblocks) > MAX_THREADBLOCKS:
            reasons.append(f"runs at most {MAX_THREADBLOCKS} threadblocks on a GPU, not {len(gpu.threadblocks)}")
        for block in gpu.threadblocks:
            if len(block.steps) > MAX_STEPS + 1:
                reasons.append(f"has at most {MAX_STEPS + 1} steps in a threadblock, not {len(block.steps)}")
            if dialect is Dialect.V2:
                reasons.extend(_v2_steps(block))
        for reason in reasons:
            if reason not in told:
                told.add(reason)
                yield f"{reason} (gpu {gpu.id})"


def _v2_steps(block: Threadblock) -> Iterator[str]:
    """A nop's dependency is folded into the next real step, which must then have one of its own."""
    folded = False
    for step in block.steps:
        if step.count > MAX_COUNT:
            yield f"moves at most {MAX_COUNT} chunks in a step, not {step.count}"
        if folded and step.kind is not Kind.NOP and step.after_block == NOBODY:
            yield "refuses a nop before a step that waits for nothing"
        folded = step.kind is Kind.NOP

"""Where a collective's data lies at the start and where it must lie at the end, in chunks of a GPU's buffers.

A **contribution** is one chunk of one rank's input, numbered ``rank * width + chunk``. In place, input and output are
the same memory, or one is a part of the other; :meth:`Buffers.place` gives every chunk of memory one name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from synth.collective import Collective
from synth.errors import LimitError
from synth.formats.msccl_xml.algorithm import Algorithm, Buffer, Gpu

Place = tuple[int, Buffer, int]
"""(rank, buffer, chunk): one chunk of memory."""

MAX_CHUNKS = 2**21
"""Chunks of all inputs and outputs together; a real program has some thousands."""

COLLECTIVES = {
    "allreduce": Collective.ALLREDUCE,
    "allgather": Collective.ALLGATHER,
    "reduce_scatter": Collective.REDUCE_SCATTER,
    "reducescatter": Collective.REDUCE_SCATTER,
    "alltoall": Collective.ALLTOALL,
    "broadcast": Collective.BROADCAST,
    "reduce": Collective.REDUCE,
}
"""Spellings whose meaning is known; of the others (custom, send, ...) the file does not say what they promise."""

_BLOCKS = (Collective.ALLGATHER, Collective.REDUCE_SCATTER, Collective.ALLTOALL)


@dataclass(frozen=True)
class Buffers:
    """Buffers of one program, for one of its two places.

    Attributes:
        algorithm: whose.
        in_place: whether input and output share memory.
    """

    algorithm: Algorithm
    in_place: bool

    @cached_property
    def collective(self) -> Collective | None:
        """What the program claims to do; None where its spelling promises nothing that can be checked."""
        return COLLECTIVES.get(self.algorithm.collective)

    @cached_property
    def factor(self) -> int:
        """Chunks of a block: ``nchunksperloop`` for whole buffers, a part of it where there is a block per rank."""
        whole = self.algorithm.chunks_per_loop
        return whole // self.algorithm.ranks if self.collective in _BLOCKS else whole

    @property
    def even(self) -> bool:
        """Whether ``nchunksperloop`` gives every block the same number of chunks."""
        parts = self.algorithm.ranks if self.collective in _BLOCKS else 1
        return self.algorithm.chunks_per_loop > 0 and self.algorithm.chunks_per_loop % parts == 0

    @cached_property
    def width(self) -> int:
        """Chunks of the largest input; contributions are numbered with it."""
        if self.collective is None:
            return max(gpu.inputs for gpu in self.algorithm.gpus) or 1
        return self.inputs(self.algorithm.gpus[0])

    def inputs(self, gpu: Gpu) -> int:
        """Chunks the caller gives."""
        if self.collective is None:
            return gpu.inputs
        return self.factor if self.collective is Collective.ALLGATHER else self.algorithm.chunks_per_loop

    def outputs(self, gpu: Gpu) -> int:
        """Chunks the caller gets."""
        if self.collective is None:
            return gpu.outputs
        return self.factor if self.collective is Collective.REDUCE_SCATTER else self.algorithm.chunks_per_loop

    def limit(self, gpu: Gpu, buffer: Buffer) -> int:
        """Chunks that a step may touch: what the file declares, and no more than the collective has."""
        match buffer:
            case Buffer.INPUT:
                return min(gpu.inputs, self.inputs(gpu))
            case Buffer.OUTPUT:
                return min(gpu.outputs, self.outputs(gpu))
            case _:
                return gpu.scratch

    def place(self, rank: int, buffer: Buffer, chunk: int) -> Place:
        """The one name of a chunk of memory."""
        if not self.in_place or buffer is Buffer.SCRATCH or self.collective is None:
            return rank, buffer, chunk
        if self.collective is Collective.ALLGATHER and buffer is Buffer.INPUT:
            return rank, Buffer.OUTPUT, rank * self.factor + chunk
        if self.collective is Collective.REDUCE_SCATTER and buffer is Buffer.OUTPUT:
            return rank, Buffer.INPUT, rank * self.factor + chunk
        shared = Buffer.OUTPUT if self.collective is Collective.ALLGATHER else Buffer.INPUT
        return rank, shared, chunk

    def start(self) -> Iterator[tuple[Place, int]]:
        """Every chunk that holds data at the start, with its contribution."""
        self._check_size()
        for gpu in self.algorithm.gpus:
            for chunk in range(self.inputs(gpu)):
                yield self.place(gpu.id, Buffer.INPUT, chunk), gpu.id * self.width + chunk

    def promised(self, root: int) -> Iterator[tuple[Place, tuple[int, ...]]]:
        """Every chunk the collective promises, with its contributions in ascending order; nothing where it is unknown.

        Args:
            root: for broadcast and reduce.
        """
        factor, everyone = self.factor, range(self.algorithm.ranks)
        for rank in everyone:
            match self.collective:
                case None:
                    return
                case Collective.REDUCE if rank != root:
                    continue
            for chunk in range(self.outputs(self.algorithm.gpus[rank])):
                block, inside = divmod(chunk, factor)
                place = self.place(rank, Buffer.OUTPUT, chunk)
                match self.collective:
                    case Collective.ALLGATHER:
                        yield place, (block * self.width + inside,)
                    case Collective.ALLTOALL:
                        yield place, (block * self.width + rank * factor + inside,)
                    case Collective.BROADCAST:
                        yield place, (root * self.width + chunk,)
                    case Collective.REDUCE_SCATTER:
                        yield place, self._everyones(rank * factor + chunk)
                    case _:
                        yield place, self._everyones(chunk)

    def _everyones(self, chunk: int) -> tuple[int, ...]:
        """Every rank's contribution to one chunk."""
        return tuple(range(chunk, self.width * self.algorithm.ranks, self.width))

    def _check_size(self) -> None:
        total = sum(self.inputs(gpu) + self.outputs(gpu) for gpu in self.algorithm.gpus)
        if total > MAX_CHUNKS:
            raise LimitError(
                f"msccl-xml: its buffers hold {total} chunks; at most {MAX_CHUNKS} are checked",
                subject="nchunksperloop",
            )


def possible_places(algorithm: Algorithm) -> list[Buffers]:
    """The buffers for each place the file says it is usable in."""
    places = [place for place, usable in ((True, algorithm.in_place), (False, algorithm.out_of_place)) if usable]
    return [Buffers(algorithm, place) for place in places]

"""What every transport's parts must do; any rank of any transport calls it."""

import numpy as np

from runtime.buffers import Buffers
from runtime.elements import Element
from synth.plan.program import Buffer, Message


def check_split(communicator):
    """Two halves, then one part without the last rank, each exchanging on its own; ranks are numbered from 0."""
    rank, size = communicator.rank, communicator.size
    for color in (rank % 2, None if rank == size - 1 else 7):
        part = communicator.split(color)
        if color is None:
            assert part is None
            continue
        members = [r for r in range(size) if r % 2 == rank % 2] if color < 2 else list(range(size - 1))
        assert (part.rank, part.size) == (members.index(rank), len(members))
        assert part.gather(b"%4d" % rank) == [b"%4d" % member for member in members]
        after, before = (part.rank + 1) % part.size, (part.rank - 1) % part.size
        source, target = np.full(8, rank, dtype=np.uint8), np.zeros(8, dtype=np.uint8)
        buffers = Buffers((source, target, target), Element("int8", 1))
        part.fork()
        sends, receives = [Message(after, Buffer.INPUT, 0, 8)], [Message(before, Buffer.OUTPUT, 0, 8)]
        if part.size > 1:
            part.group(sends, receives, buffers, 0)
            part.join()
            assert target.tolist() == [members[before]] * 8
        assert part.is_valid()
    assert communicator.gather(b"%4d" % rank) == [b"%4d" % peer for peer in range(size)]

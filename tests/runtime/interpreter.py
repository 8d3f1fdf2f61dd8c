"""All ranks' programs carried out in lock-step in one process: an independent reading of what a program means."""

import numpy as np

from synth.plan.program import Buffer


def run_programs(programs, inputs, dtype=np.int64, poison=-77):
    """Outputs of every rank. Fails when messages do not match, or when something outside the buffers is touched."""
    memory = [
        {
            Buffer.INPUT: np.array(given, dtype=dtype),
            Buffer.OUTPUT: np.full(program.outputs, poison, dtype=dtype),
            Buffer.SCRATCH: np.full(program.scratch, poison, dtype=dtype),
        }
        for program, given in zip(programs, inputs, strict=True)
    ]
    for program, own, given in zip(programs, memory, inputs, strict=True):
        assert len(given) == program.inputs
        _copy(program.local, own)
    numbers = sorted({round.number for program in programs for round in program.rounds})
    for number in numbers:
        rounds = {p.rank: r for p in programs for r in p.rounds if r.number == number}
        flying = {}
        for rank, round in rounds.items():
            _copy(round.pack, memory[rank])
            assert [m.peer for m in round.sends] == sorted({m.peer for m in round.sends})
            for m in round.sends:
                flying[rank, m.peer] = _view(memory[rank], m.buffer, m.offset, m.length).copy()
        for rank, round in rounds.items():
            for m in round.receives:
                assert m.buffer is not Buffer.INPUT
                _view(memory[rank], m.buffer, m.offset, m.length)[:] = flying.pop((m.peer, rank))
        assert not flying, f"round {number}: sent and not received: {sorted(flying)}"
        for rank, round in rounds.items():
            _copy(round.unpack, memory[rank])
            _sum(round.sums, memory[rank])
    return [own[Buffer.OUTPUT] for own in memory]


def _view(own, buffer, offset, length):
    assert length > 0
    assert offset >= 0
    assert offset + length <= len(own[Buffer(buffer)])
    return own[Buffer(buffer)][offset : offset + length]


def _copy(copies, own):
    for db, do, sb, so, n in zip(*(getattr(copies, name).tolist() for name in copies.__slots__), strict=True):
        assert db != Buffer.INPUT
        _view(own, db, do, n)[:] = _view(own, sb, so, n)


def _sum(sums, own):
    for i, (buffer, offset, n) in enumerate(zip(sums.buffer, sums.offset, sums.length, strict=True)):
        assert buffer != Buffer.INPUT
        terms = range(sums.first[i], sums.first[i + 1])
        total = sum(_view(own, sums.term_buffer[t], sums.term_offset[t], n).copy() for t in terms)
        _view(own, buffer, offset, n)[:] = total

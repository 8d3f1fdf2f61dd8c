"""Rules of a program's parts, one after another: ids, peers, connections, dependencies, bounds, counts."""

from __future__ import annotations

from collections.abc import Iterator

from synth.formats.msccl_xml.algorithm import NOBODY, Algorithm, Buffer, Gpu, Kind, Step, Threadblock
from synth.formats.msccl_xml.buffers import Buffers
from synth.verifier import Violation

MAX_PEERS = 32
"""Peers one GPU may send to, and receive from, on one channel."""


def check_numbers(algorithm: Algorithm) -> Iterator[Violation]:
    """``numbering``: GPUs, threadblocks and steps are numbered from 0 without gaps."""
    if not algorithm.gpus:
        yield Violation(rule="numbering", message="the file describes no GPU")
    for position, gpu in enumerate(algorithm.gpus):
        if gpu.id != position:
            yield Violation(
                rule="numbering", message=f"gpu {position} is missing or given twice; ids count from 0", rank=gpu.id
            )
            return
    for gpu in algorithm.gpus:
        ids = sorted(block.id for block in gpu.threadblocks)
        if ids != list(range(len(ids))):
            yield Violation(
                rule="numbering",
                message=f"gpu {gpu.id} (line {gpu.line}): its threadblocks are not numbered 0 to {len(ids) - 1}",
                rank=gpu.id,
            )
        for block in gpu.threadblocks:
            wrong = next((step for place, step in enumerate(block.steps) if step.number != place), None)
            if wrong is not None:
                message = f"{at(gpu, block, wrong)}: steps must be numbered 0 to {len(block.steps) - 1} in order"
                yield Violation(rule="numbering", message=message, rank=gpu.id)
        if min(gpu.inputs, gpu.outputs, gpu.scratch) < 0:
            yield Violation(
                rule="numbering", message=f"gpu {gpu.id} (line {gpu.line}): declares a negative buffer", rank=gpu.id
            )


def check_connections(algorithm: Algorithm) -> Iterator[Violation]:
    """``connection``: peers exist, and one threadblock at each end owns each connection."""
    senders: dict[tuple[int, int, int], int] = {}
    receivers: dict[tuple[int, int, int], int] = {}
    for gpu in algorithm.gpus:
        for block in gpu.threadblocks:
            where = at(gpu, block)
            for peer in (block.send, block.recv):
                if peer == gpu.id or not NOBODY <= peer < algorithm.ranks:
                    message = f"{where}: its peer {peer} is not another GPU of the file"
                    yield Violation(rule="connection", message=message, rank=gpu.id)
            talks = block.send != NOBODY or block.recv != NOBODY
            if not (0 if talks else NOBODY) <= block.channel < max(algorithm.channels, 1):
                message = f"{where}: its channel {block.channel} is not below nchannels {algorithm.channels}"
                yield Violation(rule="connection", message=message, rank=gpu.id)
            yield from _own(senders, (gpu.id, block.send, block.channel), block, where, "sends to")
            yield from _own(receivers, (block.recv, gpu.id, block.channel), block, where, "receives from")
    for src, dst, channel in sorted(senders.keys() ^ receivers.keys()):
        missing = "receives" if (src, dst, channel) in senders else "sends"
        yield Violation(
            rule="connection",
            message=f"connection {src} -> {dst} on channel {channel}: no threadblock {missing} at its other end",
            rank=dst if missing == "receives" else src,
        )
    for owners, end, what in ((senders, 0, "sends to"), (receivers, 1, "receives from")):
        peers: dict[tuple[int, int], int] = {}
        for key in owners:
            peers[key[end], key[2]] = peers.get((key[end], key[2]), 0) + 1
        for (rank, channel), count in peers.items():
            if count > MAX_PEERS:
                message = f"gpu {rank} {what} {count} peers on channel {channel}; at most {MAX_PEERS} are possible"
                yield Violation(rule="connection", message=message, rank=rank)


def _own(
    owners: dict[tuple[int, int, int], int], key: tuple[int, int, int], block: Threadblock, where: str, verb: str
) -> Iterator[Violation]:
    """Note who owns one end of a connection; a second owner breaks the rule."""
    if NOBODY in key[:2]:
        return
    if key in owners:
        rank, peer = (key[0], key[1]) if verb == "sends to" else (key[1], key[0])
        message = f"{where}: threadblock {owners[key]} already {verb} {peer} on channel {block.channel}"
        yield Violation(rule="connection", message=message, rank=rank)
    owners[key] = block.id


def check_dependencies(algorithm: Algorithm) -> Iterator[Violation]:
    """``dependency``: a step waits for a step of the same GPU that exists and publishes its end."""
    for gpu in algorithm.gpus:
        blocks = {block.id: block for block in gpu.threadblocks}
        for block in gpu.threadblocks:
            for step in block.steps:
                if step.after_block == NOBODY:
                    continue
                other = blocks.get(step.after_block)
                what = None
                if other is None or not 0 <= step.after_step < len(other.steps):
                    what = "which does not exist"
                elif other is block and step.after_step >= step.number:
                    what = "which is not before it"
                elif other is not block and not other.steps[step.after_step].publishes:
                    what = "which has hasdep 0 and never says that it is done"
                if what:
                    message = f"{at(gpu, block, step)}: waits for threadblock {step.after_block} step {step.after_step}"
                    yield Violation(rule="dependency", message=f"{message}, {what}", rank=gpu.id)


def check_steps(buffers: Buffers) -> Iterator[Violation]:
    """``peer``, ``count``, ``bounds``, ``reduction``: steps have a peer to talk to, and touch and add what they may."""
    moves = buffers.collective is not None and not buffers.collective.reduces
    for gpu in buffers.algorithm.gpus:
        for block in gpu.threadblocks:
            for step in block.steps:
                kind = step.kind
                if (kind.sends and block.send == NOBODY) or (kind.receives and block.recv == NOBODY):
                    end = "send" if kind.sends and block.send == NOBODY else "receive from"
                    message = f"{at(gpu, block, step)}: has nobody to {end}"
                    yield Violation(rule="peer", message=message, rank=gpu.id)
                if kind is Kind.NOP:
                    continue
                if step.count < 1:
                    message = f"{at(gpu, block, step)}: moves {step.count} chunks; must be at least 1"
                    yield Violation(rule="count", message=message, rank=gpu.id)
                    continue
                if kind.adds and moves:
                    message = f"{at(gpu, block, step)}: adds, but {buffers.algorithm.collective} only moves data"
                    yield Violation(rule="reduction", message=message, rank=gpu.id)
                if kind.reads_src:
                    yield from _bounds(buffers, gpu, block, step, step.src, step.src_offset)
                if kind.writes_dst:
                    yield from _bounds(buffers, gpu, block, step, step.dst, step.dst_offset)


def _bounds(
    buffers: Buffers, gpu: Gpu, block: Threadblock, step: Step, buffer: Buffer, offset: int
) -> Iterator[Violation]:
    limit = buffers.limit(gpu, buffer)
    if offset >= 0 and offset + step.count <= limit:
        return
    name = buffer.name.lower()
    last = offset + step.count - 1
    touched = f"chunk {offset}" if step.count == 1 else f"chunks {offset} to {last}"
    message = f"{at(gpu, block, step)}: touches {touched} of the {name}, which has {limit}"
    yield Violation(rule="bounds", message=message, rank=gpu.id, chunk=last)


def check_size(buffers: Buffers) -> Iterator[Violation]:
    """``chunks``: ``nchunksperloop`` gives every rank the same number of chunks."""
    if not buffers.even:
        loop, ranks = buffers.algorithm.chunks_per_loop, buffers.algorithm.ranks
        message = f"nchunksperloop {loop} is no positive multiple of what {buffers.algorithm.collective} needs"
        yield Violation(rule="chunks", message=f"{message} among {ranks} GPUs")


def check_messages(algorithm: Algorithm) -> Iterator[Violation]:
    """``fifo``: on every connection, the k-th message sent is as long as the k-th received, and none is left over."""
    sent: dict[tuple[int, int, int], list[tuple[Gpu, Threadblock, Step]]] = {}
    received: dict[tuple[int, int, int], list[tuple[Gpu, Threadblock, Step]]] = {}
    for gpu in algorithm.gpus:
        for block in gpu.threadblocks:
            for step in block.steps:
                if step.kind.sends:
                    sent.setdefault((gpu.id, block.send, block.channel), []).append((gpu, block, step))
                if step.kind.receives:
                    received.setdefault((block.recv, gpu.id, block.channel), []).append((gpu, block, step))
    for key in sorted(sent.keys() | received.keys()):
        ours, theirs = sent.get(key, []), received.get(key, [])
        name = f"connection {key[0]} -> {key[1]} on channel {key[2]}"
        for a, b in zip(ours, theirs, strict=False):
            if a[2].count != b[2].count:
                message = f"{name}: {at(*a)} sends {a[2].count} chunks, but {at(*b)} receives {b[2].count}"
                yield Violation(rule="fifo", message=message, rank=key[1])
                break
        else:
            if len(ours) != len(theirs):
                lost = ours[len(theirs)] if len(ours) > len(theirs) else theirs[len(ours)]
                what = "is never received" if len(ours) > len(theirs) else "never gets its message"
                message = f"{name}: {len(ours)} sent, {len(theirs)} received; {at(*lost)} {what}"
                yield Violation(rule="fifo", message=message, rank=lost[0].id)


def at(gpu: Gpu, block: Threadblock, step: Step | None = None) -> str:
    """Where something is, for messages."""
    line = block.line if step is None else step.line
    what = "" if step is None else f" step {step.number} ({step.kind.value})"
    return f"gpu {gpu.id} threadblock {block.id}{what}" + (f", line {line}" if line else "")

"""An interpreter of MSCCL++ execution plans, as strict as the hardware is: it runs every threadblock in random turns.

A part of a buffer is cut in ``UNITS`` units, so that threadblocks which share an operation get uneven slices. Within a
threadblock, what one operation did is only seen by the next after a ``nop``; between GPUs, after a signal was waited
for. Anything else is an error, as is reading what nobody wrote.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

UNITS = 5
Value = tuple[tuple[int, int, int], ...]
"""Contributions (rank, part, unit) that were added up."""
Cell = tuple[int, str, int]
"""(rank, buffer, unit)."""


class Machine:
    """All GPUs, with their inputs filled."""

    def __init__(self, document: dict[str, Any], seed: int) -> None:
        self.gpus = document["gpus"]
        self.in_place = document["inplace"]
        self.collective = document["collective"]
        self.dice = random.Random(seed)
        self.memory: dict[Cell, Value] = {}
        self.signals: Counter[tuple[str, int, int, int]] = Counter()
        self.blocks = [Block(self, gpu, block) for gpu in self.gpus for block in gpu["threadblocks"]]
        for gpu in self.gpus:
            for unit in range(gpu["input_chunks"] * UNITS):
                self.memory[self.cell(gpu["id"], "i", unit)] = ((gpu["id"], *divmod(unit, UNITS)),)

    def cell(self, rank: int, buffer: str, unit: int) -> Cell:
        """The one name of a unit, in place too."""
        gpu = self.gpus[rank]
        size = {"i": gpu["input_chunks"], "o": gpu["output_chunks"], "s": gpu["scratch_chunks"]}[buffer]
        assert 0 <= unit < size * UNITS, f"rank {rank}: unit {unit} of {buffer}, which has {size} parts"
        if self.in_place and buffer == "i" and gpu["output_chunks"] > gpu["input_chunks"]:
            return rank, "o", rank * gpu["input_chunks"] * UNITS + unit
        if self.in_place and buffer == "o" and gpu["output_chunks"] <= gpu["input_chunks"]:
            shift = rank * gpu["output_chunks"] * UNITS if gpu["output_chunks"] < gpu["input_chunks"] else 0
            return rank, "i", shift + unit
        return rank, buffer, unit

    def run(self) -> dict[Cell, Value]:
        """Run everything; the memory at the end."""
        running = [block for block in self.blocks if block.ops]
        while running:
            self.dice.shuffle(running)
            chosen = next((block for block in running if block.ready()), None)
            if chosen is None:
                break
            for _ in range(self.dice.choice((1, 1, 100))):
                if chosen.ready():
                    chosen.step()
            running = [block for block in running if block.next < len(block.ops)]
        stuck = [(block.rank, block.ops[block.next]) for block in self.blocks if block.next < len(block.ops)]
        assert not stuck, f"waits forever: {stuck[:3]}"
        assert not +self.signals, "a signal nobody waited for"
        return self.memory


class Block:
    """One threadblock."""

    def __init__(self, machine: Machine, gpu: dict[str, Any], block: dict[str, Any]) -> None:
        self.machine = machine
        self.gpu = gpu
        self.rank = gpu["id"]
        self.ops = block["ops"]
        self.next = 0
        self.channels = {entry["channel_type"]: entry["channel_ids"] for entry in block["channels"]}
        self.remote = {e["access_channel_type"]: e["remote_buffer_ids"] for e in block["remote_buffer_refs"]}
        self.fresh_reads: set[Cell] = set()
        self.fresh_writes: set[Cell] = set()
        self.put = self.waited = False
        assert len(self.ops) <= 64
        assert all(len(ids) <= 16 for table in (self.channels, self.remote) for ids in table.values())

    def line(self, kind: str, number: int, *, outgoing: bool) -> tuple[str, int, int, int]:
        """The semaphore of a channel: the k-th channel to a peer belongs to the peer's k-th to us."""
        connected = next(c["connected_to"] for c in self.gpu["channels"] if c["channel_type"] == kind)
        place = self.channels[kind][number]
        peer = connected[place]
        turn = connected[:place].count(peer)
        back = next(c["connected_to"] for c in self.machine.gpus[peer]["channels"] if c["channel_type"] == kind)
        assert back.count(self.rank) == connected.count(peer)
        return (kind, self.rank, peer, turn) if outgoing else (kind, peer, self.rank, turn)

    def ready(self) -> bool:
        if self.next == len(self.ops):
            return False
        op = self.ops[self.next]
        if op["name"] != "wait":
            return True
        lines = [self.line(op["channel_type"], number, outgoing=False) for number in op["channel_ids"]]
        return all(self.machine.signals[line] > 0 for line in lines)

    def step(self) -> None:
        op = self.ops[self.next]
        self.next += 1
        assert len(op.get("channel_ids", ())) <= 8
        match op["name"]:
            case "nop":
                self.fresh_reads.clear()
                self.fresh_writes.clear()
                self.put = self.waited = False
            case "signal":
                assert not self.put, "signals before its threads have put"
                for number in op["channel_ids"]:
                    self.machine.signals[self.line(op["channel_type"], number, outgoing=True)] += 1
            case "wait":
                self.waited = True
                for number in op["channel_ids"]:
                    self.machine.signals[self.line(op["channel_type"], number, outgoing=False)] -= 1
            case "flush":
                assert op["channel_type"] == "port"
            case "put":
                self.put = True
                assert len({source["type"] for source in op["src_buff"]}) == 1
                for number, source, target in zip(op["channel_ids"], op["src_buff"], op["dst_buff"], strict=True):
                    kind = op["channel_type"]
                    remote = self.gpu["remote_buffers"][self.remote[kind][target["buffer_id"]]]
                    assert kind in remote["access_channel_types"]
                    assert remote["rank"] == self.line(kind, number, outgoing=True)[2]
                    self.move([(self.rank, source)], (remote["rank"], target | {"type": remote["type"]}), op)
            case "copy" | "re":
                sources = [(self.rank, source) for source in op["src_buff"]]
                assert len(sources) == (1 if op["name"] == "copy" else 2)
                self.move(sources, (self.rank, op["dst_buff"][0]), op)
            case other:
                raise AssertionError(f"operation {other}")

    def move(self, sources: list[tuple[int, dict[str, Any]]], target: tuple[int, dict[str, Any]], op: Any) -> None:
        """Set the target to the sum of the sources, slice by slice."""
        assert not self.waited, "uses data before its threads know that it is there"
        group = op.get("tbg_info", {"tb_id": 0, "tbg_size": 1})
        assert {source["size"] for _, source in sources} == {target[1]["size"]}
        size = target[1]["size"] * UNITS
        each, rest = divmod(size, group["tbg_size"])
        begin = group["tb_id"] * each + min(group["tb_id"], rest)
        for unit in range(begin, begin + each + (group["tb_id"] < rest)):
            cells = [self.machine.cell(rank, part["type"], part["index"] * UNITS + unit) for rank, part in sources]
            rank, part = target
            goal = self.machine.cell(rank, part["type"], part["index"] * UNITS + unit)
            assert not self.fresh_writes & {goal, *cells}, f"needs a nop: {op}"
            assert goal not in self.fresh_reads - set(cells), f"needs a nop: {op}"
            value: Value = ()
            for cell in cells:
                assert cell in self.machine.memory, f"reads what nobody wrote: {cell} by {op}"
                value += self.machine.memory[cell]
            self.machine.memory[goal] = tuple(sorted(value))
            self.fresh_reads |= set(cells)
            self.fresh_writes.add(goal)

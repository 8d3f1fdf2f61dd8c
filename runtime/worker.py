"""One rank of ``synth run``: carries out a plan and the native collective on known data, checks and times both.

Started as ``python -m runtime.worker PLAN OPTIONS``, both JSON files; rank 0 writes the result file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from runtime.checked import counts_for, given, wanted
from runtime.communicators import Call, Communicator
from runtime.communicators.open import open_communicator
from runtime.elements import Element
from runtime.executor import execute
from runtime.lifeline import hold_on
from runtime.place import find_place
from runtime.plans import agree
from runtime.schedules import Operation
from synth import documents
from synth import plan as plans
from synth.collective import Collective
from synth.errors import InvalidUsage, SynthError
from synth.plan.lowering import Lowering


def main(path: str, options: dict[str, Any]) -> None:
    """Run this rank."""
    hold_on()
    place = find_place()
    if place is None:
        raise InvalidUsage("runtime.worker is started by 'synth run'")
    communicator = open_communicator(options["transport"], place, options["deadline"])
    plan = plans.load(path)
    agree(communicator, Operation(plan.collective, plan.root), plan, "")
    element = Element(options["dtype"], options["itemsize"])
    pairs: tuple[tuple[int, int], ...] = ()
    if plan.collective is Collective.SENDRECV:
        pairs = tuple(zip(plan.chunks.origin.tolist(), plan.chunks.target.tolist(), strict=True))
    matrix = None if options["demand"] is None else np.array(options["demand"])
    rank, size, root = communicator.rank, plan.members, plan.root or 0
    counts = counts_for(plan.collective, size, options["bytes"], element.itemsize, matrix=matrix, pairs=pairs)
    empty = np.zeros(0, dtype=np.uint8)
    member = rank < size
    source = given(plan.collective, counts, rank, root, element) if member else empty
    right = wanted(plan.collective, counts, rank, root, element, size) if member else empty
    target = np.zeros_like(right)
    program = Lowering(plan, rank).program(counts, align=max(1, 16 // element.itemsize))
    call = Call(plan.collective, counts, source, target, element, root=root)
    planned = _time(communicator, lambda: execute(communicator, program, source, target, element), target, options)
    wrong = int((target != right).sum())
    native = None
    if plan.helpers == 0 and communicator.native(call):
        native = _time(communicator, lambda: communicator.native(call), target, options)
        wrong_native = int((target != right).sum())
    figures = [wrong, planned, native if native is not None else -1.0]
    rows = np.array([np.frombuffer(row) for row in communicator.gather(np.array(figures, dtype=float).tobytes())])
    if rank == 0:
        result = {
            "wrong_bytes": int(rows[:, 0].sum()),
            "seconds": rows[:, 1].max(),
            "native_seconds": None if native is None else rows[:, 2].max(),
            "native_wrong_bytes": None if native is None else wrong_native,
            "transport": communicator.name,
        }
        documents.write(Path(options["result"]), json.dumps(result))
    communicator.close()


def _time(communicator: Communicator, act: Callable[[], Any], target: np.ndarray, options: dict[str, Any]) -> float:
    """Median seconds over the repeats, after one that is not timed; ranks start together."""
    seconds = []
    for turn in range(options["repeat"] + 1):
        target[:] = 0xA5
        communicator.gather(b"go")
        began = time.perf_counter()
        act()
        communicator.synchronize()
        if turn:
            seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


if __name__ == "__main__":
    os.environ.setdefault("SYNTH_QUIET", "1")
    try:
        main(sys.argv[1], documents.read(sys.argv[2]))
    except SynthError as error:
        here = find_place()
        print(f"rank {'?' if here is None else here.rank}: {error}", file=sys.stderr, flush=True)
        sys.exit(1)

"""One rank of ``synth bench``: schedules of one collective, timed pairwise in one run, and checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from runtime.bench_torch import torch_call
from runtime.checked import counts_for, given, wanted
from runtime.communicators import Call, Communicator
from runtime.counts import input_elements
from runtime.elements import Element, Reduction
from runtime.executor import execute
from runtime.plans import agree
from runtime.schedules import Operation, Schedules
from synth import plan as plans
from synth.collective import Collective
from synth.errors import InputError
from synth.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to measure; the names of ``synth bench``'s flags."""

    collective: str
    sizes: tuple[int, ...]
    dtype: str = "float32"
    itemsize: int = 4
    op: str = "sum"
    root: int = 0
    iterations: int = 20
    warmup: int = 5
    skew: float = 0.0
    seed: int = 0
    check: bool = True
    schedules: tuple[str, ...] = ("plan", "direct", "native")
    plan_files: tuple[str, ...] = field(default_factory=tuple)


def sizes_between(least: int, most: int, factor: float, step: int | None) -> tuple[int, ...]:
    """Sizes as nccl-tests goes through them: times ``factor``, or plus ``step``."""
    if least < 1 or most < least or (step is None and factor <= 1) or (step is not None and step < 1):
        raise InputError(f"sizes {least} to {most}: must rise by a factor above 1 or a step of at least 1 byte")
    found = [least]
    while (following := found[-1] + step if step else max(int(found[-1] * factor), found[-1] + 1)) <= most:
        found.append(following)
        if len(found) > 1000:
            raise InputError("sizes: more than 1000; take a larger factor or step")
    return tuple(found)


def zipf_matrix(ranks: int, bytes: int, skew: float, seed: int) -> np.ndarray:
    """[ranks, ranks] bytes of an alltoall whose targets are as popular as Zipf's law says, shuffled by ``seed``."""
    popularity = 1.0 / np.arange(1, ranks + 1) ** skew
    shares = np.random.default_rng(seed).permutation(popularity)
    return np.tile(shares / shares.sum() * bytes, (ranks, 1)).astype(np.int64)


def run(communicator: Communicator, options: Options) -> list[dict[str, Any]]:
    """Measure every size; the same rows on every rank, times of the slowest."""
    collective = Collective(options.collective)
    operation = Operation(collective, options.root if collective.rooted else None, _ring(collective, communicator.size))
    plan = _plan(options.plan_files, operation, communicator.size)
    plan, _ = agree(communicator, operation, plan, "")
    schedules = Schedules(operation, communicator.rank, communicator.size, plan)
    return [row for size in options.sizes for row in _measure(communicator, schedules, options, size)]


def _ring(collective: Collective, size: int) -> tuple[tuple[int, int], ...]:
    return tuple((r, (r + 1) % size) for r in range(size)) if collective is Collective.SENDRECV else ()


def _plan(files: tuple[str, ...], operation: Operation, size: int) -> Plan | None:
    for path in files:
        plan = plans.load(path)
        if (plan.collective, plan.root, plan.members) == (operation.collective, operation.root, size):
            return plan
    return None


def _measure(communicator: Communicator, schedules: Schedules, options: Options, size: int) -> Iterator[dict[str, Any]]:
    operation, ranks, rank = schedules.operation, communicator.size, communicator.rank
    collective, element = operation.collective, Element(options.dtype, options.itemsize)
    matrix = None
    if collective is Collective.ALLTOALL and options.skew > 0:
        matrix = zipf_matrix(ranks, size, options.skew, options.seed)
    counts = counts_for(collective, ranks, size, element.itemsize, matrix=matrix, pairs=operation.pairs)
    root = operation.root or 0
    put = _putter(communicator)
    source = put(given(collective, counts, rank, root, element))
    right = put(wanted(collective, counts, rank, root, element, ranks))
    target = put(np.zeros(right.size, dtype=np.uint8))
    call = Call(collective, counts, source, target, element, Reduction(options.op), root)
    actions = dict(_actions(communicator, schedules, call, options))
    wrong: dict[str, int] = {}
    for name, act in actions.items():
        target.fill(0xA5)
        act()
        communicator.synchronize()
        sums = options.op == "sum" or not collective.reduces
        wrong[name] = int((target != right).sum()) if options.check and sums else 0
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(options.warmup + options.iterations):
        for name, act in actions.items():  # pairwise: every schedule once per turn
            communicator.gather(b"go")
            began = time.perf_counter()
            act()
            communicator.synchronize()
            if turn >= options.warmup:
                seconds[name].append(time.perf_counter() - began)
    mine = np.array([[np.median(seconds[name]), wrong[name]] for name in actions])
    everyone = np.stack([np.frombuffer(one).reshape(mine.shape) for one in communicator.gather(mine.tobytes())])
    real = input_elements(collective, counts, ranks) * element.itemsize
    for position, name in enumerate(actions):
        slowest = float(everyone[:, position, 0].max())
        algbw = real / slowest if slowest > 0 else 0.0
        yield {
            "bytes": real,
            "count": real // element.itemsize,
            "dtype": options.dtype,
            "op": options.op if collective.reduces else "none",
            "root": root if collective.rooted else -1,
            "schedule": name,
            "seconds": slowest,
            "algbw_bytes_per_s": algbw,
            "busbw_bytes_per_s": algbw * collective.busbw_factor(ranks),
            "wrong_bytes": int(everyone[:, position, 1].sum()) if options.check else None,
        }


def _putter(communicator: Communicator) -> Callable[[np.ndarray], Any]:
    """How bytes get to where the communicator's memory is."""
    if hasattr(communicator.memory, "held"):
        cupy: Any = import_module("cupy")
        return lambda data: cupy.asarray(data)
    return lambda data: data


def _actions(
    communicator: Communicator, schedules: Schedules, call: Call, options: Options
) -> Iterator[tuple[str, Callable[[], Any]]]:
    memory, align = communicator.memory, max(1, 16 // call.element.itemsize)

    def carry_out(prepared: Any) -> Callable[[], None]:
        program = prepared.program(call.counts, align)

        def act() -> None:
            with memory.stream_of(call.source):
                execute(communicator, program, call.source, call.target, call.element, call.reduction)

        return act

    def native() -> bool:
        with memory.stream_of(call.source):
            return communicator.native(call)

    size = input_elements(call.collective, call.counts, communicator.size) * call.element.itemsize
    for name in options.schedules:
        if name == "plan" and (planned := schedules.planned(call.counts, size)) is not None:
            yield f"plan {planned.plan.digest[:8]}", carry_out(planned)
        elif name == "direct":
            yield "direct", carry_out(schedules.direct)
        elif name == "native" and native():
            yield "native", native
        elif name == "torch":
            yield "torch", torch_call(communicator, call)

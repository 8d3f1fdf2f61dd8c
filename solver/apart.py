"""Solves an integer program in a process of its own, which can be ended at any moment.

HiGHS asks its callbacks whether to stop only now and then, up to several seconds apart where cuts are made; a process
can always be ended. The child tells of every better solution and of its bound, so what it found by then is kept.

This file is also the child's program: it reads one order from stdin, writes one JSON line per piece of news, and ends
when stdin does, so it never outlives the process that started it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import highspy

POLL_SECONDS = 0.05
"""How often the parent asks whether to stop."""
TELL_SECONDS = 0.5
"""How often the child tells its bound."""
GRACE_SECONDS = 1.0
"""How long the child may overrun its time limit before it is ended."""


@dataclass(slots=True)
class News:
    """What is known of the program.

    Attributes:
        objective: of the best solution so far; infinite where there is none.
        bound: no solution has less.
        values: {column: value} of the best solution, zeros left out.
        status: how HiGHS ended, in its own words; empty until then, or where the child was ended.
    """

    objective: float = float("inf")
    bound: float = float("-inf")
    values: dict[int, float] = field(default_factory=dict)
    status: str = ""


def solve(
    model: Any,
    *,
    time_limit: float | None,
    seed: int,
    cancel: Callable[[], bool],
    tell: Callable[[News], None] = lambda news: None,
) -> News:
    """Minimise a model until it is solved, time is up, or somebody asks to stop.

    Args:
        model: a ``highspy.Highs`` with the program.
        time_limit: in seconds.
        seed: for HiGHS's own random choices.
        cancel: asked every ``POLL_SECONDS``.
        tell: called whenever more is known.

    Raises:
        OSError: there is no room for the model, or no process can be started.
    """
    end = float("inf") if time_limit is None else time.monotonic() + time_limit + GRACE_SECONDS
    with tempfile.TemporaryDirectory(prefix="synth-") as folder:
        file = Path(folder, "model.mps")
        model.writeModel(str(file))
        order = json.dumps({"file": str(file), "time_limit": time_limit, "seed": seed}).encode() + b"\n"
        child = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        assert child.stdin is not None
        assert child.stdout is not None
        news = News()
        try:
            child.stdin.write(order)
            child.stdin.flush()
            reader = threading.Thread(target=_listen, args=(child.stdout, news), daemon=True)
            reader.start()
            known = (news.objective, news.bound)
            while reader.is_alive() and not cancel() and time.monotonic() < end:
                reader.join(POLL_SECONDS)
                if known != (news.objective, news.bound):
                    known = (news.objective, news.bound)
                    tell(news)
        finally:
            child.kill()
            child.wait()
            reader.join()
            child.stdin.close()
            child.stdout.close()
    return news


def _listen(lines: Any, news: News) -> None:
    """Keep what the child tells until it ends."""
    for line in lines:
        told = json.loads(line)
        if "values" in told:
            news.values = {int(column): value for column, value in told["values"]}
            news.objective = told["objective"]
        if told["bound"] is not None:
            news.bound = max(news.bound, told["bound"])
        news.status = told.get("status", "")


def main() -> None:
    """Be the child."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # HiGHS prints a banner
    order = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    model.setOptionValue("mip_rel_gap", 0.0)
    model.setOptionValue("random_seed", order["seed"])
    if order["time_limit"] is not None:
        model.setOptionValue("time_limit", float(order["time_limit"]))
    model.readModel(order["file"])
    shutil.rmtree(Path(order["file"]).parent)  # here and now, in case the parent is killed
    last = time.monotonic()

    def write(bound: float, **more: object) -> None:
        finite = bound if abs(bound) < highspy.kHighsInf else None
        answers.write(json.dumps({"bound": finite, **more}) + "\n")
        answers.flush()

    def better(event: Any) -> None:
        told = event.data_out
        write(told.mip_dual_bound, objective=told.objective_function_value, values=_sparse(told.mip_solution))

    def now_and_then(event: Any) -> None:
        nonlocal last
        if time.monotonic() >= last + TELL_SECONDS:
            last = time.monotonic()
            write(event.data_out.mip_dual_bound)

    model.cbMipImprovingSolution += better
    model.cbMipInterrupt += now_and_then
    model.run()
    info = model.getInfo()
    more: dict[str, object] = {"status": model.modelStatusToString(model.getModelStatus())}
    if info.primal_solution_status:
        more |= {"objective": info.objective_function_value, "values": _sparse(model.getSolution().col_value)}
    write(info.mip_dual_bound, **more)


def _sparse(values: Any) -> list[tuple[int, float]]:
    return [(column, float(value)) for column, value in enumerate(values) if abs(value) > 1e-9]


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()

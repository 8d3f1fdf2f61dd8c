"""Forming expert-parallel groups and placing experts."""

from __future__ import annotations

from server.tasks.reading import Report, read_text
from synth.documents import Json


def groups(task: Json, _report: Report) -> Json:
    """Form groups: {topology (text), ep_size, ranks?, bytes, costs} -> the answer of ``synth groups``."""
    from solver.groups.answer import answer

    options = {name: value for name, value in task.items() if name not in ("topology", "ep_size")}
    return answer(read_text(task["topology"]), task["ep_size"], **options).document


def place(task: Json, _report: Report) -> Json:
    """Place experts: {topology (text), loads, ..} -> the answer of ``synth place``."""
    from solver.placement.answer import Request, answer
    from synth.formats import expert_maps

    options = {name: value for name, value in task.items() if name not in ("topology", "loads", "previous")}
    previous = task.get("previous")
    request = Request(
        loads=expert_maps.read_loads({"loads": task["loads"]}, subject="body"),
        previous=None if previous is None else expert_maps.read_map({"phy2log": previous}, subject="body"),
        **options,
    )
    return answer(read_text(task["topology"]), request).document

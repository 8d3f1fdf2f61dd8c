"""What a child process can be asked to do: functions from JSON to JSON, by name.

Everything that may be slow or large for hostile input runs here, where a time and a memory limit can end it without
harm to the server.
"""

from __future__ import annotations

import importlib

from server.tasks.reading import Report
from synth.documents import Json
from synth.errors import SynthError

TASKS = {
    "solve": "solving",
    "solve_book": "solving",
    "read_topology": "topologies",
    "freeze": "topologies",
    "compare": "topologies",
    "check": "plans",
    "price": "plans",
    "draw": "plans",
    "export": "plans",
    "cut": "plans",
    "groups": "experts",
    "place": "experts",
}
"""The module of each task; only that one is loaded."""


def run(name: str, task: Json, report: Report) -> Json:
    """Do one task; a failure on purpose comes back as ``{"error": {code, message, subject, kind}}``."""
    try:
        return {"result": getattr(importlib.import_module(f"{__name__}.{TASKS[name]}"), name)(task, report)}
    except SynthError as error:
        return {"error": error_document(error)}
    except MemoryError:
        return {"error": {"kind": "memory", "code": "", "message": "needs more memory than accepted", "subject": None}}
    except RecursionError:
        return {"error": {"kind": "memory", "code": "", "message": "is nested too deeply", "subject": None}}


def error_document(error: SynthError) -> dict[str, Json]:
    """An error as JSON; ``kind`` names its class so that it can be raised again elsewhere."""
    kind = f"{type(error).__module__}:{type(error).__qualname__}"
    return {"kind": kind, "code": error.code, "message": error.message, "subject": error.subject}

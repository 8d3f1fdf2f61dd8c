"""What a command gives back: one JSON object and the same as text for people."""

from __future__ import annotations

from dataclasses import dataclass

from synth.documents import Json


@dataclass(frozen=True, slots=True)
class Answer:
    """A command's result.

    Attributes:
        document: what ``--json`` prints, one object.
        text: what people see without it.
        exit: 0 success, 1 a negative answer (invalid, infeasible); bad input is raised as InputError instead.
    """

    document: Json
    text: str
    exit: int = 0

"""One broken rule."""

from __future__ import annotations

from dataclasses import dataclass

from synth.documents import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule, with where it was seen.

    Attributes:
        rule: name of the rule, see ``docs/verify.md``.
        message: one sentence.
        rank: rank at fault.
        round: round of segment 0.
        chunk: position in the chunk columns of the expanded plan.
    """

    rule: str
    message: str
    rank: int | None = None
    round: int | None = None
    chunk: int | None = None

    def to_document(self) -> dict[str, Json]:
        """As ``synth check --json`` prints it."""
        optional = {"rank": self.rank, "round": self.round, "chunk": self.chunk}
        known = {key: value for key, value in optional.items() if value is not None}
        return {"rule": self.rule, "message": self.message} | known

"""Checking and pricing plans."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from server.api.v1.schemas.common import Digest, Document, LaunchNs, Request, Size


class VerifyRequest(Request):
    """A plan to check."""

    plan: Document = Field(description="a synth-plan/1 document")
    topology: Document | Digest | None = Field(None, description="a document, or the digest of a stored one")
    bytes: Size | None = Field(None, description="size the stated bound is for, where the plan does not say")


class Violation(BaseModel):
    """A broken rule."""

    rule: str
    message: str
    rank: int | None = None
    round: int | None = None
    chunk: int | None = None


class VerifyAnswer(BaseModel):
    """All broken rules."""

    valid: bool
    violations: list[Violation]
    bound_checked: bool
    digest: str


class SimulateRequest(Request):
    """A plan to price."""

    plan: Document = Field(description="a synth-plan/1 document")
    topology: Document | Digest | None = Field(None, description="default: the stored one the plan names")
    bytes: Size | None = None
    cost: Literal["rounds", "timeline"] = "rounds"
    launch_ns: LaunchNs = 0.0


class BusyLink(BaseModel):
    """A link and how long it is busy."""

    src: str
    dst: str
    seconds: float


class SimulateAnswer(BaseModel):
    """What a plan costs."""

    seconds: float
    bytes: int
    rounds: int
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    busiest_links: list[BusyLink]

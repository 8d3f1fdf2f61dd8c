"""Plans and which of them to use."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from server.api.v1.schemas.common import CollectiveName, Digest, LaunchNs, Rank, Request, Size
from server.api.v1.schemas.jobs import Job
from synth.simulator import LAUNCH_NS


class Range(Request):
    """Sizes a plan shall be chosen for."""

    min: Size
    max: Size


class Objective(Request):
    """What the solver minimises."""

    cost: Literal["rounds", "timeline"] = "rounds"
    launch_ns: LaunchNs = LAUNCH_NS


class DemandMatrix(Request):
    """Bytes per ordered pair of ranks."""

    bytes: list[list[Annotated[float, Field(ge=0, lt=2**63, allow_inf_nan=False)]]] = Field(min_length=2)


class ExactAim(Request):
    """What an exact schedule of up to 8 ranks (16 that look alike to the machine) shall prove."""

    objective: Literal["time", "rounds", "slots"] = Field(
        "time", description="the least time, number of rounds of one slot each, or of slots in so many rounds"
    )
    rounds: int | None = Field(None, ge=1, le=64, description="most rounds; default as many as may help")
    chunks: int = Field(1, ge=1, le=64, description="equal parts that every block is cut in")


class PlanRequest(Request):
    """A plan to make, unless it is known."""

    topology: Digest = Field(description="fingerprint or digest of a stored topology")
    collective: CollectiveName
    ranks: list[str] | None = Field(None, min_length=2, description="device ids in rank order; default every GPU")
    bytes: Size | None = Field(None, description="size to make the plan for")
    range: Range | None = Field(None, description="sizes it shall answer; default half to twice of bytes")
    demand: DemandMatrix | None = Field(None, description="for an uneven alltoall; bytes is then not needed")
    root: Rank | None = None
    pairs: list[Annotated[list[Rank], Field(min_length=2, max_length=2)]] | None = Field(
        None, min_length=1, description="for sendrecv: [from, to] each"
    )
    objective: Objective = Objective()
    time_limit: float = Field(10.0, gt=0, allow_inf_nan=False, description="seconds the solver may take")
    seed: int = Field(0, ge=0, lt=2**31)
    strategies: list[str] | None = Field(
        None, min_length=1, max_length=32, description="names of those to try, as `synth solve --strategy`; default all"
    )
    exact: ExactAim | None = Field(None, description="prove a plan of few ranks to be the best of its kind")


class PlanAnswer(BaseModel):
    """A plan that is ready."""

    state: Literal["ready"] = "ready"
    digest: str
    url: str
    bytes: int = Field(description="size it was made for")
    min_bytes: int
    max_bytes: int
    bound_seconds: float | None
    predicted_seconds: float | None
    gap: float | None


class PlanPending(BaseModel):
    """A plan that is being made."""

    state: Literal["pending"] = "pending"
    job: Job


class BookRequest(Request):
    """A few plans to make that together answer every size of a range."""

    topology: Digest = Field(description="fingerprint or digest of a stored topology")
    collective: CollectiveName
    range: Range = Field(description="sizes to serve, from at least 1 byte")
    ranks: list[str] | None = Field(None, min_length=2, description="device ids in rank order; default every GPU")
    root: Rank | None = None
    pairs: list[Annotated[list[Rank], Field(min_length=2, max_length=2)]] | None = Field(
        None, min_length=1, description="for sendrecv: [from, to] each"
    )
    objective: Objective = Objective()
    time_limit: float = Field(30.0, gt=0, allow_inf_nan=False, description="seconds the solver may take in all")
    seed: int = Field(0, ge=0, lt=2**31)


class BookAnswer(BaseModel):
    """A book that is ready: its plans in order of size; their ranges meet."""

    state: Literal["ready"] = "ready"
    min_bytes: int
    max_bytes: int
    plans: list[PlanAnswer]


class ResolveAnswer(PlanAnswer):
    """Which plan to use now."""

    exact: bool = Field(description="whether it was chosen for a range that holds the size asked for")


class PlanSummary(BaseModel):
    """A stored plan, in short."""

    digest: str
    topology: str
    collective: str
    ranks: int
    created_at: float
    bytes: int | None
    predicted_seconds: float | None
    bound_seconds: float | None
    gap: float | None


class Plans(BaseModel):
    """The newest plans."""

    plans: list[PlanSummary]

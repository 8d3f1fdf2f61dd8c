"""Jobs."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Progress(BaseModel):
    """How far a solve is."""

    model_config = ConfigDict(extra="allow")

    incumbent_seconds: float | None = Field(None, description="predicted time of the best plan so far")
    bound_seconds: float | None = Field(None, description="proven lower bound so far")
    gap: float | None = Field(None, description="incumbent over bound, less one")


class JobError(BaseModel):
    """Why a job failed."""

    code: str
    message: str
    subject: str | None


class Job(BaseModel):
    """A job."""

    id: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    attempt: int
    collective: str
    topology: str
    ranks: int
    bytes: int
    time_limit: float
    book: bool = Field(False, description="whether it makes a few plans that share a range of sizes")
    progress: Progress | None
    cancel_requested: bool
    plan: str | None = Field(description="digest, when done")
    error: JobError | None
    created_at: float
    started_at: float | None
    finished_at: float | None
    heartbeat_at: float | None
    url: str


class Jobs(BaseModel):
    """The newest jobs."""

    jobs: list[Job]

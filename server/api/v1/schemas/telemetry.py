"""What jobs measure."""

from __future__ import annotations

from pydantic import BaseModel, Field

from server.api.v1.schemas.common import Digest, Request


class Edge(Request):
    """What was moved from one GPU to another, and how long the rounds it travelled in took."""

    src: str = Field(max_length=300, description="device id of the sender")
    dst: str = Field(max_length=300, description="device id of the receiver")
    bytes: float = Field(gt=0, le=1e18, allow_inf_nan=False)
    seconds: float = Field(gt=0, le=1e9, allow_inf_nan=False)


class TelemetryRequest(Request):
    """What a running job measured since its last report."""

    topology: Digest = Field(description="fingerprint or digest of a stored topology")
    edges: list[Edge] = Field(min_length=1, max_length=65_536)


class TelemetryAnswer(BaseModel):
    """What was taken."""

    edges: int


class MeasuredEdge(BaseModel):
    """One edge, summed over all reports."""

    src: str
    dst: str
    reports: int
    bytes: float
    seconds: float
    bytes_per_s: float = Field(description="over all reports")
    latest_bytes_per_s: float
    reported_at: float
    route_bytes_per_s: float | None = Field(description="of the slowest link of its route; null without a route")
    peers_bytes_per_s: float | None = Field(description="median of the edges with an equal route; null for too few")


class SlowEdge(BaseModel):
    """A finding: an edge that falls behind those with an equal route."""

    code: str
    severity: str
    subject: str
    message: str


class Telemetry(BaseModel):
    """What jobs measured on a topology."""

    edges: list[MeasuredEdge]
    findings: list[SlowEdge]

"""Groups and placements."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from server.api.v1.schemas.common import Digest, Document, Request, Size

Table = list[list[Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]]]


class GroupsRequest(Request):
    """Expert-parallel groups to form; everything as ``synth groups`` takes it."""

    topology: Document | Digest = Field(description="a document, or the digest of a stored one")
    ep_size: int = Field(ge=1, le=65_536, description="GPUs per group")
    ranks: list[str] | None = Field(None, min_length=2, description="GPUs that take part; default every GPU")
    bytes: Size = Field(64 * 2**20, description="alltoall input of each rank")
    costs: bool = Field(False, description="add the rank-to-rank cost matrix in microseconds")


class GroupsAnswer(BaseModel):
    """Groups, and the order of ranks that makes them."""

    model_config = ConfigDict(extra="allow")

    groups: list[list[str]]
    colors: list[int]
    rank_order: list[str]
    predicted_seconds: float
    bound_seconds: float


class PlacementRequest(Request):
    """Experts to place; everything as ``synth place`` takes it."""

    topology: Document | Digest = Field(description="a document, or the digest of a stored one")
    loads: Table = Field(min_length=1, max_length=512, description="load of each logical expert, per layer")
    replicas: int | None = Field(None, ge=1, le=65_536, description="physical experts in all; default no copies")
    ep_size: int | None = Field(None, ge=1, le=65_536, description="ranks; default every GPU")
    expert_groups: int = Field(1, ge=1, le=65_536, description="groups of experts that stay in one node")
    previous: list[list[int]] | None = Field(None, description="placement in force, phy2log per layer")
    expert_bytes: int = Field(0, ge=0, le=2**50, description="weights of one expert in one layer")
    memory_bytes: int | None = Field(None, ge=0, le=2**60, description="what a rank may spend on experts")
    slack: float | None = Field(None, ge=0, le=1, description="loads this close count as equal")
    min_gain: float | None = Field(None, ge=0, le=1, description="smaller gains keep the previous placement")


class PlacementAnswer(BaseModel):
    """Where the experts go; one entry per layer; the maps as EPLB defines them."""

    model_config = ConfigDict(extra="allow")

    phy2log: list[list[int]]
    log2phy: list[list[list[int]]]
    logcnt: list[list[int]]
    max_over_mean: list[float]
    bound_max_over_mean: list[float]

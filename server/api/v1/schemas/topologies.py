"""Topologies."""

from __future__ import annotations

from pydantic import BaseModel, Field

from server.api.v1.schemas.common import Document, Request


class TopologyRequest(Request):
    """A topology to store: a document, or the merge of what nodes reported."""

    topology: Document | None = Field(None, description="a synth-topology/1 document; without it, nodes are merged")
    name: str = Field("cluster", min_length=1, max_length=200, description="of the merged cluster")
    nodes: list[str] | None = Field(None, min_length=1, description="nodes to merge; default all that reported")


class TopologyAnswer(BaseModel):
    """A stored topology."""

    fingerprint: str = Field(description="the same for all equal machines, whatever they are called")
    digest: str = Field(description="of this very document")
    name: str
    devices: int
    links: int
    ranks: list[str] = Field(description="ids of the GPUs: the default ranks")
    created: bool = Field(description="whether this document is new here")
    url: str


class TopologySummary(BaseModel):
    """A stored topology, in short."""

    digest: str
    fingerprint: str
    name: str
    gpus: int
    links: int
    created_at: float


class Topologies(BaseModel):
    """The newest topologies."""

    topologies: list[TopologySummary]

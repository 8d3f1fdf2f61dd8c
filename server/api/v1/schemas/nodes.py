"""Nodes and their reports."""

from __future__ import annotations

from pydantic import BaseModel, Field

from server.api.v1.schemas.common import Document


class NodeAnswer(BaseModel):
    """What a report changed."""

    name: str
    digest: str = Field(description="of the report's document")
    fingerprint: str = Field(description="of the node's shape")
    changed: bool = Field(description="whether the content differs from the report before")
    findings: int


class Node(BaseModel):
    """A node's latest report, in short."""

    name: str
    digest: str
    fingerprint: str
    findings: int
    reported_at: float = Field(description="seconds since 1970")
    changed_at: float = Field(description="when its content last changed")
    age_seconds: float


class Nodes(BaseModel):
    """All nodes that reported."""

    nodes: list[Node]


class NodeReport(Node):
    """A node's latest report, with the document."""

    topology: Document

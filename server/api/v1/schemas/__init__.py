"""Bodies of requests and answers. Requests refuse unknown keys; documents themselves are checked by ``synth``."""

from server.api.v1.schemas.checks import (
    BusyLink,
    SimulateAnswer,
    SimulateRequest,
    VerifyAnswer,
    VerifyRequest,
    Violation,
)
from server.api.v1.schemas.common import CollectiveName, Digest, Document, LaunchNs, Rank, Request, Size
from server.api.v1.schemas.experts import GroupsAnswer, GroupsRequest, PlacementAnswer, PlacementRequest
from server.api.v1.schemas.jobs import Job, JobError, Jobs, Progress
from server.api.v1.schemas.nodes import Node, NodeAnswer, NodeReport, Nodes
from server.api.v1.schemas.plans import (
    BookAnswer,
    BookRequest,
    DemandMatrix,
    ExactAim,
    Objective,
    PlanAnswer,
    PlanPending,
    PlanRequest,
    Plans,
    PlanSummary,
    Range,
    ResolveAnswer,
)
from server.api.v1.schemas.rendezvous import Job as RendezvousJob
from server.api.v1.schemas.rendezvous import Key, RendezvousAnswer, RendezvousValue, RendezvousValues
from server.api.v1.schemas.telemetry import Edge, MeasuredEdge, SlowEdge, Telemetry, TelemetryAnswer, TelemetryRequest
from server.api.v1.schemas.topologies import Topologies, TopologyAnswer, TopologyRequest, TopologySummary

__all__ = [
    "BookAnswer",
    "BookRequest",
    "BusyLink",
    "CollectiveName",
    "DemandMatrix",
    "Digest",
    "Document",
    "Edge",
    "ExactAim",
    "GroupsAnswer",
    "GroupsRequest",
    "Job",
    "JobError",
    "Jobs",
    "Key",
    "LaunchNs",
    "MeasuredEdge",
    "Node",
    "NodeAnswer",
    "NodeReport",
    "Nodes",
    "Objective",
    "PlacementAnswer",
    "PlacementRequest",
    "PlanAnswer",
    "PlanPending",
    "PlanRequest",
    "PlanSummary",
    "Plans",
    "Progress",
    "Range",
    "Rank",
    "RendezvousAnswer",
    "RendezvousJob",
    "RendezvousValue",
    "RendezvousValues",
    "Request",
    "ResolveAnswer",
    "SimulateAnswer",
    "SimulateRequest",
    "Size",
    "SlowEdge",
    "Telemetry",
    "TelemetryAnswer",
    "TelemetryRequest",
    "Topologies",
    "TopologyAnswer",
    "TopologyRequest",
    "TopologySummary",
    "VerifyAnswer",
    "VerifyRequest",
    "Violation",
]

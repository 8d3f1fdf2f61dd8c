"""Bodies of requests and answers. Requests refuse unknown keys; documents themselves are checked by ``synth``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Document = dict[str, Any]
Size = Annotated[int, Field(ge=0, le=2**62)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Rank = Annotated[int, Field(ge=0, lt=65_536)]
LaunchNs = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
CollectiveName = Literal["alltoall", "allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "sendrecv"]


class Request(BaseModel):
    """A request body."""

    model_config = ConfigDict(extra="forbid", strict=True)


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


class Range(Request):
    """Sizes a plan shall be chosen for."""

    min: Size
    max: Size


class Objective(Request):
    """What the solver minimises."""

    cost: Literal["rounds", "timeline"] = "rounds"
    launch_ns: LaunchNs = 0.0


class DemandMatrix(Request):
    """Bytes per ordered pair of ranks."""

    bytes: list[list[Annotated[float, Field(ge=0, lt=2**63, allow_inf_nan=False)]]] = Field(min_length=2)


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


Table = list[list[Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]]]


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

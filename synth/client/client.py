"""The client: what the server offers, as functions, with the cache in front of everything that never changes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from synth import documents, plan, topology
from synth.client.cache import Answer, Cache, check_slice
from synth.client.environment import Environment
from synth.client.http import Connection, Deadline, Reply
from synth.client.request import PlanRequest
from synth.documents import Json
from synth.errors import InputError, NotFoundError, ServiceError, ServiceUnavailable
from synth.plan import Plan
from synth.topology import Topology

POLL_SECONDS = 20.0
"""A wait is cut in pieces of so many seconds, so that a proxy on the way does not end it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The server's answer to a request.

    Attributes:
        digest: of the plan to use now.
        exact: whether it was chosen for a range that holds the size.
        predicted_seconds: at the size it was made for.
        bound_seconds: proven for that size.
        etag: of this answer.
    """

    digest: str
    exact: bool
    predicted_seconds: float | None
    bound_seconds: float | None
    etag: str


class Client:
    """Talks to one server.

    Args:
        server: its address, such as ``http://127.0.0.1:8080``.
        token: bearer token.
        ca_file: certificates to trust instead of the system's.
        cache: where documents are kept; default none.
        timeout: seconds each call may take in all, tries and pauses included.
    """

    def __init__(
        self,
        server: str,
        *,
        token: str | None = None,
        ca_file: str | None = None,
        cache: Cache | None = None,
        timeout: float = 30.0,
    ) -> None:
        self._connection = Connection(server.rstrip("/"), token=token, ca_file=ca_file)
        self.cache = cache or Cache(None)
        self._timeout = timeout

    @classmethod
    def from_environment(cls, environment: Environment) -> Client:
        """The client that the environment describes.

        Raises:
            InputError: it names no server.
        """
        if environment.server is None:
            raise InputError("SYNTH_SERVER: is not set; write http://HOST:PORT", subject="SYNTH_SERVER")
        return cls(
            environment.server,
            token=environment.token,
            ca_file=environment.ca_file,
            cache=Cache(environment.cache),
            timeout=environment.timeout,
        )

    @property
    def server(self) -> str:
        """Its address."""
        return self._connection.server

    def put_node_topology(self, name: str, report: Topology | Json) -> Json:
        """Report a node: {name, digest, fingerprint, changed, findings}."""
        return self._json("PUT", f"/v1/nodes/{quote(name, safe='')}/topology", body=_document(report))

    def post_topology(self, machine: Topology | Json | None = None, *, name: str = "cluster") -> Json:
        """Store a topology, or with None freeze what the nodes reported: {fingerprint, digest, ranks, ..}."""
        body = {"name": name} if machine is None else {"topology": _document(machine)}
        return self._json("POST", "/v1/topologies", body=body)

    def topology(self, digest: str) -> Topology:
        """The topology of this digest, or the oldest of this fingerprint."""
        document = self._json("GET", f"/v1/topologies/{quote(digest, safe='')}")
        return topology.from_document(document, subject=f"topology {digest[:12]}")

    def post_plan(self, request: PlanRequest, *, time_limit: float = 10.0, seed: int = 0) -> Json:
        """Ask for a plan: {state: "ready", digest, ..} or {state: "pending", job}."""
        body = _subject(request) | {"bytes": request.bytes, "time_limit": time_limit, "seed": seed}
        if request.demand is not None:
            body["demand"] = {"bytes": request.demand.tolist()}
        return self._known("POST", "/v1/plans", request, body=body)

    def post_book(
        self, request: PlanRequest, least: int, most: int, *, time_limit: float = 30.0, seed: int = 0
    ) -> Json:
        """Ask for plans for all sizes of a range: {state: "ready", plans: [..]} or {state: "pending", job}.

        Once they are there, :meth:`resolve` finds the right one for each size.

        Args:
            request: what for; its own size is not looked at.
            least: smallest size.
            most: largest size.
            time_limit: seconds for all of it.
            seed: of the solver.
        """
        sizes = {"range": {"min": least, "max": most}}
        body = _subject(request) | sizes | {"time_limit": time_limit, "seed": seed}
        return self._known("POST", "/v1/books", request, body=body)

    def job(self, id: str) -> Json:
        """A job: {id, state, progress, plan, error, ..}."""
        return self._json("GET", f"/v1/jobs/{quote(id, safe='')}")

    def cancel(self, id: str) -> Json:
        """Stop a job."""
        return self._json("DELETE", f"/v1/jobs/{quote(id, safe='')}")

    def post_telemetry(self, topology: str, edges: Sequence[tuple[str, str, float, float]]) -> Json:
        """Report what a job measured: (sender's device, receiver's device, bytes, seconds) of each edge.

        Args:
            topology: digest or fingerprint of a topology that the server knows.
            edges: since the last report.
        """
        listed = [{"src": a, "dst": b, "bytes": moved, "seconds": seconds} for a, b, moved, seconds in edges]
        return self._json("POST", "/v1/telemetry", body={"topology": topology, "edges": listed})

    def wait_for_job(self, id: str, *, seconds: float) -> Json:
        """The job, once it ended or the time is over."""
        deadline = Deadline.after(seconds)
        job = self.job(id)
        while job["state"] in ("queued", "running") and deadline.left:
            time.sleep(min(0.2, deadline.left))
            job = self.job(id)
        return job

    def resolve(self, request: PlanRequest, *, wait: float = 0.0, etag: str | None = None) -> Resolved | None:
        """Which plan to use now; the server may start a job and is waited for.

        Args:
            request: what for.
            wait: seconds to wait for a plan that is being made.
            etag: of the last answer; None is returned while that still holds.

        Raises:
            ServiceUnavailable: the server does not answer, or the plan is not ready in time.
            NotFoundError: there is no plan, and this token may not start a job.
            SynthError: whatever the server answers, such as Infeasible.
        """
        if request.demand is not None:
            self._order(request)
        end = Deadline.after(wait)
        while True:
            piece = min(end.left, POLL_SECONDS)
            path = f"/v1/resolve?{urlencode(_query(request) | {'wait': f'{piece:.3f}'})}"
            reply = self._reply_known(path, request, patience=piece, etag=etag)
            if reply.status == 304:
                return None
            answer = reply.json()
            if reply.status == 200:
                return Resolved(
                    digest=_digest(answer),
                    exact=answer["exact"],
                    predicted_seconds=answer["predicted_seconds"],
                    bound_seconds=answer["bound_seconds"],
                    etag=reply.etag,
                )
            if not end.left:
                raise ServiceUnavailable(
                    f"server {self.server}: the plan is not ready after {wait:g} s (job {answer['job']['id']})",
                    subject=self.server,
                )

    def _order(self, request: PlanRequest) -> None:
        """Resolve knows a demand by its digest only, so the demand itself goes ahead."""
        self.post_plan(request)

    def plan(self, digest: str) -> Plan:
        """A plan, from the cache or the server, checked against its digest.

        Raises:
            ServiceError: the server sent something else.
        """
        text = self.cache.document(digest)
        if text is None:
            with self.cache.lock(digest, seconds=self._timeout):  # one rank of the node fetches it
                text = self.cache.document(digest) or self._fetch(digest)
        return plan.from_document(documents.parse(text), subject=f"plan {digest[:12]}")

    def _fetch(self, digest: str) -> str:
        reply = self._ask("GET", f"/v1/plans/{quote(digest, safe='')}")
        text = reply.body.decode("utf-8", "replace")
        if documents.digest_text(text) != digest:
            raise ServiceError(f"server {self.server}: sent another document than plan {digest[:12]}")
        self.cache.put_document(digest, text)
        return text

    def plan_slice(self, digest: str, rank: int) -> Json:
        """One rank's slice of a plan, from the cache or the server, checked; read it with ``synth.plan.load_slice``.

        Raises:
            DocumentError: the server sent something else.
        """
        document = self.cache.slice(digest, rank)
        if document is None:
            document = self._json("GET", f"/v1/plans/{quote(digest, safe='')}/ranks/{rank}")
            check_slice(document, digest, rank)
            self.cache.put_slice(digest, rank, document)
        return document

    def answer(self, request: PlanRequest, *, wait: float) -> Answer:
        """Resolve a request, one rank of the node at a time; the others take what it was told.

        Raises:
            SynthError: as :meth:`resolve`.
        """
        began = time.time()
        with self.cache.lock(request.key, seconds=self._timeout + wait):
            known = self.cache.answer(request.key)
            if known is not None and known.server == self.server and known.asked_at >= began:
                return known
            same_server = known is not None and known.server == self.server
            etag = known.etag if known is not None and same_server else None
            resolved = self.resolve(request, wait=wait, etag=etag)
            if resolved is None:
                assert known is not None
                answer = Answer(plan=known.plan, etag=known.etag, server=self.server, asked_at=time.time())
            else:
                answer = Answer(plan=resolved.digest, etag=resolved.etag, server=self.server, asked_at=time.time())
            self.cache.put_answer(request.key, answer)
        return answer

    def _known(self, method: str, path: str, request: PlanRequest, *, body: Json) -> Json:
        """Ask about a topology, and store it first where the server does not know it yet."""
        try:
            return self._json(method, path, body=body)
        except NotFoundError as error:
            if error.subject != "topology":
                raise
        self.post_topology(request.topology_document)
        return self._json(method, path, body=body)

    def _reply_known(self, path: str, request: PlanRequest, *, patience: float, etag: str | None) -> Reply:
        try:
            return self._ask("GET", path, patience=patience, etag=etag)
        except NotFoundError as error:
            if error.subject != "topology":
                raise
        self.post_topology(request.topology_document)
        return self._ask("GET", path, patience=patience, etag=etag)

    def _json(self, method: str, path: str, *, body: Json | None = None) -> Json:
        return self._ask(method, path, body=body).json()

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        patience: float = 0.0,
        etag: str | None = None,
    ) -> Reply:
        deadline = Deadline.after(self._timeout)
        return self._connection.ask(method, path, deadline=deadline, body=body, etag=etag, patience=patience)


def _document(machine: Topology | Json) -> Json:
    return topology.to_document(machine) if isinstance(machine, Topology) else machine


def _subject(request: PlanRequest) -> dict[str, Json]:
    """What a plan or a book is asked for, without sizes."""
    subject: dict[str, Json] = {
        "topology": request.topology_digest,
        "collective": request.collective,
        "ranks": list(request.ranks),
    }
    if request.root is not None:
        subject["root"] = request.root
    if request.pairs:
        subject["pairs"] = [list(pair) for pair in request.pairs]
    return subject


def _query(request: PlanRequest) -> dict[str, str]:
    query = {
        "topology": request.topology_digest,
        "collective": request.collective,
        "bytes": str(request.bytes),
        "ranks": ",".join(request.ranks),
    }
    if request.root is not None:
        query["root"] = str(request.root)
    if request.pairs:
        query["pairs"] = ",".join(f"{a}:{b}" for a, b in request.pairs)
    if request.demand_digest is not None:
        query["demand"] = request.demand_digest
    return query


def _digest(answer: Json) -> str:
    digest = answer.get("digest") if isinstance(answer, dict) else None
    if not isinstance(digest, str) or len(digest) != 64:
        raise ServiceError("the server's answer names no plan; is it a synth server?")
    return digest

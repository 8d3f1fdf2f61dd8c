"""Which plan a job uses, decided once at its start, with one line that says which and why."""

from __future__ import annotations

from typing import NamedTuple

from synth import documents, plan
from synth.client.cache import Cache
from synth.client.client import Client
from synth.client.environment import Environment
from synth.client.request import PlanRequest
from synth.errors import SynthError
from synth.plan import Plan


class Found(NamedTuple):
    """What was found.

    Attributes:
        plan: None when the job goes on with the library's own collective.
        source: ``file``, ``server``, ``cache`` or ``none``.
        reason: one line for the log.
    """

    plan: Plan | None
    source: str
    reason: str


def find_plan(request: PlanRequest, environment: Environment) -> Found:
    """Find the plan for a request: a plan file, else the server, else the cache, else none. Never raises SynthError.

    The plan fits the request (collective, topology, ranks, size) and its digest is right; whether it is valid is for
    the caller to check with :func:`synth.verifier.verify`, as with any plan.
    """
    remark = ""
    for path in environment.plan_files:
        try:
            found = plan.load(path)
        except SynthError as error:
            remark = f" (SYNTH_PLAN_FILE: {error.message})"
            continue
        misfit = request.misfit(found)
        if misfit is None:
            return Found(found, "file", f"plan {found.digest[:12]} from file {path}")
        remark = f" (SYNTH_PLAN_FILE {path}: {misfit})"
    if environment.server is None:
        return _without_server(request, environment, remark)
    try:
        client = Client.from_environment(environment)
        answer = client.answer(request, wait=environment.wait)
        found = client.plan(answer.plan)
        misfit = request.misfit(found)
        if misfit is not None:
            return Found(None, "none", f"no plan: server {environment.server} sent one, but {misfit}{remark}")
        return Found(found, "server", f"plan {found.digest[:12]} from server {environment.server}{remark}")
    except SynthError as error:
        cached = _cached(request, environment)
        if cached is not None:
            return Found(cached, "cache", f"plan {cached.digest[:12]} from cache: {error.message}{remark}")
        return Found(None, "none", f"no plan: {error.message}, and none is cached for this request{remark}")


def _without_server(request: PlanRequest, environment: Environment, remark: str) -> Found:
    if environment.cache_wanted:
        cached = _cached(request, environment)
        if cached is not None:
            return Found(cached, "cache", f"plan {cached.digest[:12]} from cache: SYNTH_SERVER is not set{remark}")
        return Found(None, "none", f"no plan: SYNTH_SERVER is not set, and none is cached for this request{remark}")
    if environment.plan_files:
        return Found(None, "none", f"no plan: no plan file fits{remark}")
    return Found(None, "none", "no plan: neither SYNTH_PLAN_FILE nor SYNTH_SERVER is set")


def _cached(request: PlanRequest, environment: Environment) -> Plan | None:
    """The plan that last answered exactly this request, if it is still whole."""
    cache = Cache(environment.cache)
    answer = cache.answer(request.key)
    text = None if answer is None else cache.document(answer.plan)
    if text is None:
        return None
    try:
        found = plan.from_document(documents.parse(text))
    except SynthError:
        return None
    return found if request.misfit(found) is None else None

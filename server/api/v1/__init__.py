"""Version 1 of the API: one module per resource."""

from fastapi import APIRouter

from server.api.v1 import books, checks, jobs, nodes, plans, rendezvous, resolve, telemetry, topologies

router = APIRouter(prefix="/v1")
for module in (nodes, topologies, plans, books, resolve, jobs, checks, telemetry, rendezvous):
    router.include_router(module.router)

__all__ = ["router"]

"""The application: made from settings by one function, with nothing global."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from server import auth, openapi, problems
from server.api import operations, v1
from server.context import Context, Endings
from server.jobs.runner import Runner
from server.metrics import Metrics
from server.middleware import Around
from server.paths import Paths
from server.settings import Settings
from server.slices import Slices
from server.store import Database
from server.web import pages

DESCRIPTION = "Topologies in, verified plans of collectives out."


def create_app(settings: Settings) -> FastAPI:
    """Build the service.

    Raises:
        InputError: the database or the token file cannot be used.
    """
    tokens = None if settings.tokens is None else auth.Tokens(settings.tokens)
    database = Database(settings.db)
    metrics = Metrics(operations.VERSION)
    endings = Endings()
    context = Context(
        settings=settings,
        database=database,
        metrics=metrics,
        runner=Runner(database, settings, metrics, ended=endings.note),
        endings=endings,
        slices=Slices(
            database,
            lambda text, first, ranks: context.perform("cut", {"plan": text, "first": first, "ranks": ranks}),
        ),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        endings.attach(asyncio.get_running_loop())
        context.runner.start()
        try:
            yield
        finally:
            context.draining = True
            await asyncio.to_thread(context.runner.stop)
            database.close()

    app = FastAPI(
        title="synth",
        version=operations.VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
    )
    app.state.context = context
    app.state.metrics = metrics
    app.state.tokens = tokens
    app.state.loopback_only = auth.is_loopback(settings.host)
    app.openapi = lambda: openapi.describe(app)  # type: ignore[method-assign]
    problems.install(app)
    app.include_router(operations.router, responses=openapi.PROBLEMS)
    app.include_router(v1.router)
    app.include_router(pages.router)
    app.state.paths = paths = Paths(app.openapi()["paths"] | pages.PATHS)
    app.add_middleware(Around, metrics=metrics, paths=paths, max_body_bytes=settings.max_body_bytes)
    return app

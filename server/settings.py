"""Everything that can be set, with its default; flags of ``synth serve`` and ``SYNTH_SERVE_*`` variables set them."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """One server's settings; a flag wins over its variable (``--max-ranks`` over ``SYNTH_SERVE_MAX_RANKS``)."""

    model_config = SettingsConfigDict(env_prefix="SYNTH_SERVE_", frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8080, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    db: str = Field("synth.db", description="SQLite file, or a database URL such as postgresql+psycopg://...")
    tokens: Path | None = Field(None, description="file of hashed tokens; without it everybody may do everything")
    allow_remote: bool = Field(False, description="listen beyond loopback although there are no tokens")
    metrics_token: bool = Field(False, description="/metrics needs a token with the scope plan:read")
    tls_cert: Path | None = Field(None, description="certificate file; with it the server speaks HTTPS")
    tls_key: Path | None = Field(None, description="private key of the certificate")
    tls_client_ca: Path | None = Field(None, description="accept only clients with a certificate of this authority")

    workers: int = Field(
        default_factory=lambda: max(1, (os.cpu_count() or 2) // 2),
        ge=0,
        le=1024,
        description="solves that run at the same time; 0 leaves them to other servers on the same database",
    )
    lease_seconds: float = Field(15.0, ge=1, le=3600, description="a job whose server was silent so long is taken over")
    attempts: int = Field(3, ge=1, le=100, description="a job is started at most so often before it fails")
    keep_days: float = Field(30.0, ge=0, le=36_500, description="jobs that ended longer ago are forgotten; plans stay")
    drain_seconds: float = Field(0.0, ge=0, le=600, description="after SIGTERM, keep answering so long while not ready")

    max_body_bytes: int = Field(32 * 2**20, ge=1024, description="largest request body")
    max_devices: int = Field(20_000, ge=2, description="most devices of a topology")
    max_links: int = Field(100_000, ge=1, description="most links of a topology")
    max_ranks: int = Field(1024, ge=2, description="most ranks of a plan")
    max_seconds: float = Field(600.0, gt=0, description="longest solve that may be asked for")
    max_queue: int = Field(1000, ge=0, description="most jobs that wait")
    max_jobs_per_token: int = Field(100, ge=1, description="most unfinished jobs of one token")
    max_wait: float = Field(60.0, ge=0, le=3600, description="longest that a request may wait for a plan or a value")
    max_rendezvous: int = Field(100_000, ge=1, description="most rendezvous values of one token")
    rendezvous_seconds: float = Field(
        600.0, ge=1, le=86_400, description="a rendezvous value is forgotten after so long"
    )
    check_seconds: float = Field(60.0, gt=0, description="longest that checking one document may take")
    check_memory_bytes: int = Field(4 * 2**30, ge=2**28, description="most memory that checking one document may take")

    solver: str = "solver.portfolio:solve"
    """Where the solver is; tests put another there. Not a flag."""

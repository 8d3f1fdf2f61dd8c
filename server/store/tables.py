"""The tables. Documents are kept gzipped, exactly as they are served; times are seconds since 1970.

A change here needs a new file in ``migrations/versions``; a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", String(253), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("document", LargeBinary, nullable=False),
    Column("findings", Integer, nullable=False),
    Column("reported_at", Float, nullable=False),
    Column("changed_at", Float, nullable=False),
)

topologies = Table(
    "topologies",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("fingerprint", String(64), nullable=False),
    Column("name", Text, nullable=False),
    Column("devices", Integer, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("links", Integer, nullable=False),
    Column("places", LargeBinary, nullable=False),
    Column("document", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Index(None, "fingerprint", "created_at"),
)
"""``places`` is [[GPU id, place in canonical order], ..], so that equal machines of other names share plans."""

plans = Table(
    "plans",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("topology", String(64), ForeignKey("topologies.digest"), nullable=False),
    Column("collective", String(32), nullable=False),
    Column("ranks", Integer, nullable=False),
    Column("document", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
)

slices = Table(
    "slices",
    metadata,
    Column("plan", String(64), ForeignKey("plans.digest"), primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("document", LargeBinary, nullable=False),
)

resolutions = Table(
    "resolutions",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("shape", String(64), nullable=False),
    Column("subject", String(64), nullable=False),
    Column("min_bytes", BigInteger, nullable=False),
    Column("max_bytes", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("plan", String(64), ForeignKey("plans.digest"), nullable=False),
    Column("bound_seconds", Float, nullable=True),
    Column("predicted_seconds", Float, nullable=True),
    Column("gap", Float, nullable=True),
    Column("created_at", Float, nullable=False),
    Index(None, "subject", "min_bytes", "max_bytes"),
    Index(None, "shape"),
)
"""Which plan answers which request; ``subject`` is the request without its size."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("key", String(64), nullable=False),
    Column("active_key", String(64), nullable=True),
    Column("subject", String(64), nullable=False),
    Column("min_bytes", BigInteger, nullable=False),
    Column("max_bytes", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("owner", String(128), nullable=True),
    Column("lease_until", Float, nullable=True),
    Column("heartbeat_at", Float, nullable=True),
    Column("cancel", Integer, nullable=False),
    Column("caller", String(128), nullable=False),
    Column("request", Text, nullable=False),
    Column("progress", Text, nullable=True),
    Column("plan", String(64), ForeignKey("plans.digest"), nullable=True),
    Column("error", Text, nullable=True),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float, nullable=True),
    Column("finished_at", Float, nullable=True),
    UniqueConstraint("active_key"),
    Index(None, "state", "created_at"),
    Index(None, "key", "finished_at"),
    Index(None, "subject", "state"),
)
"""The truth about every solve. ``active_key`` repeats ``key`` until the job ends: equal requests share one job."""

measurements = Table(
    "measurements",
    metadata,
    Column("topology", String(64), ForeignKey("topologies.digest"), primary_key=True),
    Column("src", String(300), primary_key=True),
    Column("dst", String(300), primary_key=True),
    Column("reports", Integer, nullable=False),
    Column("bytes", Float, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("latest_bytes_per_s", Float, nullable=False),
    Column("reported_at", Float, nullable=False),
)
"""What running jobs measured from one GPU to another, summed over their reports."""

rendezvous = Table(
    "rendezvous",
    metadata,
    Column("caller", String(128), primary_key=True),
    Column("job", String(128), primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("value", LargeBinary, nullable=False),
    Column("expires_at", Float, nullable=False),
    Index(None, "expires_at"),
)
"""What ranks of a job leave for each other; one token's jobs are hidden from those of others."""

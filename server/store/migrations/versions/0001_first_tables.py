"""First tables: nodes, topologies, plans, slices, resolutions, jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "nodes",
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.Column("findings", sa.Integer(), nullable=False),
        sa.Column("reported_at", sa.Float(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_nodes"),
    )
    op.create_table(
        "topologies",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("devices", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("links", sa.Integer(), nullable=False),
        sa.Column("places", sa.LargeBinary(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_topologies"),
    )
    op.create_index("ix_topologies_fingerprint_created_at", "topologies", ["fingerprint", "created_at"])
    op.create_table(
        "plans",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("topology", sa.String(64), nullable=False),
        sa.Column("collective", sa.String(32), nullable=False),
        sa.Column("ranks", sa.Integer(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_plans"),
        sa.ForeignKeyConstraint(["topology"], ["topologies.digest"], name="fk_plans_topology"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("active_key", sa.String(64), nullable=True),
        sa.Column("subject", sa.String(64), nullable=False),
        sa.Column("min_bytes", sa.BigInteger(), nullable=False),
        sa.Column("max_bytes", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(128), nullable=True),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("heartbeat_at", sa.Float(), nullable=True),
        sa.Column("cancel", sa.Integer(), nullable=False),
        sa.Column("caller", sa.String(128), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=True),
        sa.Column("plan", sa.String(64), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.ForeignKeyConstraint(["plan"], ["plans.digest"], name="fk_jobs_plan"),
        sa.UniqueConstraint("active_key", name="uq_jobs_active_key"),
    )
    op.create_index("ix_jobs_key_finished_at", "jobs", ["key", "finished_at"])
    op.create_index("ix_jobs_state_created_at", "jobs", ["state", "created_at"])
    op.create_index("ix_jobs_subject_state", "jobs", ["subject", "state"])
    op.create_table(
        "resolutions",
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("shape", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(64), nullable=False),
        sa.Column("min_bytes", sa.BigInteger(), nullable=False),
        sa.Column("max_bytes", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("plan", sa.String(64), nullable=False),
        sa.Column("bound_seconds", sa.Float(), nullable=True),
        sa.Column("predicted_seconds", sa.Float(), nullable=True),
        sa.Column("gap", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_resolutions"),
        sa.ForeignKeyConstraint(["plan"], ["plans.digest"], name="fk_resolutions_plan"),
    )
    op.create_index("ix_resolutions_shape", "resolutions", ["shape"])
    op.create_index("ix_resolutions_subject_min_bytes_max_bytes", "resolutions", ["subject", "min_bytes", "max_bytes"])
    op.create_table(
        "slices",
        sa.Column("plan", sa.String(64), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("plan", "rank", name="pk_slices"),
        sa.ForeignKeyConstraint(["plan"], ["plans.digest"], name="fk_slices_plan"),
    )


def downgrade() -> None:
    """Take back."""
    for table in ("slices", "resolutions", "jobs", "plans", "topologies", "nodes"):
        op.drop_table(table)

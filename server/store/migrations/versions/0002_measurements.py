"""What jobs measured per edge."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "measurements",
        sa.Column("topology", sa.String(64), nullable=False),
        sa.Column("src", sa.String(300), nullable=False),
        sa.Column("dst", sa.String(300), nullable=False),
        sa.Column("reports", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.Float(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("latest_bytes_per_s", sa.Float(), nullable=False),
        sa.Column("reported_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("topology", "src", "dst", name="pk_measurements"),
        sa.ForeignKeyConstraint(["topology"], ["topologies.digest"], name="fk_measurements_topology"),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("measurements")

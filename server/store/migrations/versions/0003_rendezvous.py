"""Where the ranks of a job find each other."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "rendezvous",
        sa.Column("caller", sa.String(128), nullable=False),
        sa.Column("job", sa.String(128), nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("caller", "job", "key", name="pk_rendezvous"),
    )
    op.create_index("ix_rendezvous_expires_at", "rendezvous", ["expires_at"])


def downgrade() -> None:
    """Take back."""
    op.drop_table("rendezvous")

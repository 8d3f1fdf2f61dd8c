"""Alembic's entry: run the migrations on the connection that :class:`server.store.Database` holds."""

from __future__ import annotations

from alembic import context

from server.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=False,  # the caller's transaction spans all steps
)
context.run_migrations()

"""Alembic migrations, run by the server when it starts."""

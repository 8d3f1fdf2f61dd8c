"""What the service remembers, in SQLite or PostgreSQL: nodes, topologies, plans, slices and jobs."""

from server.store.database import Database

__all__ = ["Database"]

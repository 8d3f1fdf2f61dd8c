"""The database: opening it, bringing its tables up to date, and short transactions whose failures are our errors."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from server.errors import StorageFull, StorageUnavailable
from synth.errors import InputError

BUSY_SECONDS = 20
_MIGRATION_LOCK = 0x73796E7468  # "synth", for pg_advisory_xact_lock


class Database:
    """A database whose tables are up to date.

    Args:
        db: a file name (SQLite) or a database URL.

    Raises:
        InputError: it cannot be opened, is no database, or belongs to a newer synth; one sentence says which.
    """

    def __init__(self, db: str) -> None:
        self.name = db
        self._engine = _engine(db)
        try:
            self._upgrade()
        except CommandError as error:
            raise InputError(
                f"--db {self.label}: was written by another version of synth ({error}); use that one, or another file",
                subject=db,
            ) from None
        except SQLAlchemyError as error:
            raise InputError(f"--db {self.label}: cannot be opened ({_cause(error)})", subject=db) from None

    @property
    def label(self) -> str:
        """Its name without a password."""
        return self.name if "://" not in self.name else make_url(self.name).render_as_string(hide_password=True)

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._engine.dialect.name

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view of the data.

        Raises:
            ServiceError: the database failed.
        """
        with _translated(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction, written whole or not at all; SQLite takes its write lock at once, so it cannot deadlock.

        Raises:
            ServiceError: the database failed; nothing was changed.
        """
        with _translated(), self._engine.connect() as plain:
            connection = plain.execution_options(synth_writes=True)
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _upgrade(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        with self._engine.connect() as plain:
            connection = plain.execution_options(synth_writes=True)
            with connection.begin():
                if self.dialect == "postgresql":
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
                config.attributes["connection"] = connection
                command.upgrade(config, "head")


def _engine(db: str) -> Engine:
    try:
        url = make_url(db) if "://" in db else make_url(f"sqlite:///{db}")
        if url.get_backend_name() != "sqlite":
            return create_engine(url, pool_size=10, max_overflow=40, pool_pre_ping=True)
        engine = create_engine(url, pool_size=10, max_overflow=40, connect_args={"timeout": BUSY_SECONDS})
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise InputError(
            f"--db {db.split('@')[-1]}: is neither a file name nor a usable database URL ({error})", subject="--db"
        ) from None

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin below, not behind our back
        cursor = connection.cursor()
        _use_write_ahead_log(cursor)
        for pragma in ("synchronous=FULL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("synth_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _use_write_ahead_log(cursor: sqlite3.Cursor) -> None:
    """Switch the journal; SQLite does not wait for a lock here, so several servers that start together take turns."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        cause = _cause(error)
        full = getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        if full or getattr(error.orig, "sqlstate", None) == "53100":
            raise StorageFull(
                f"the database cannot be written ({cause}); nothing was changed, free some space"
            ) from error
        if error.connection_invalidated or type(error.orig).__name__ in ("OperationalError", "InterfaceError"):
            raise StorageUnavailable(f"the database does not answer ({cause}); try again") from error
        raise
    except SQLAlchemyError as error:
        if type(error).__name__ == "TimeoutError":
            raise StorageUnavailable("the database has no free connection; try again") from error
        raise


def _cause(error: BaseException) -> str:
    text = str(getattr(error, "orig", None) or error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__

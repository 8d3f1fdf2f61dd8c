"""Tables and migrations."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_mock_engine, func, insert, select

import server.store
from server.store import Database, documents
from server.store.tables import metadata, nodes
from synth.errors import InputError


def test_an_empty_file_is_brought_up_to_date_and_again_is_harmless(tmp_path: Path) -> None:
    path = tmp_path / "synth.db"
    for _ in range(2):
        database = Database(str(path))
        with database.read() as connection:
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        database.close()
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_servers_that_start_together_migrate_once(tmp_path: Path) -> None:
    path = str(tmp_path / "synth.db")
    with ThreadPoolExecutor(6) as pool:
        opened = list(pool.map(lambda _: Database(path), range(6)))
    for database in opened:
        with database.read() as connection:
            assert connection.execute(select(func.count()).select_from(nodes)).scalar_one() == 0
        database.close()


def test_migrations_are_one_line_from_nothing_to_now() -> None:
    folder = Path(server.store.__file__).parent / "migrations"
    revisions = list(ScriptDirectory(str(folder)).walk_revisions())
    assert [r.revision for r in reversed(revisions)] == [f"{n:04d}" for n in range(1, len(revisions) + 1)]


def test_a_database_of_a_newer_synth_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "synth.db"
    Database(str(path)).close()
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(InputError, match="was written by another version of synth"):
        Database(str(path))


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "synth.db"))
    row = {"name": "n", "digest": "d", "fingerprint": "f", "document": b"", "findings": 0}
    row |= {"reported_at": 0.0, "changed_at": 0.0}

    def fail() -> None:
        with database.write() as connection:
            connection.execute(insert(nodes).values(**row))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(nodes)).scalar_one() == 0
    database.close()


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "synth.db"))
    together = threading.Barrier(8)

    def write(number: int) -> None:
        together.wait()
        for step in range(10):
            row = {"name": f"{number}-{step}", "digest": "d", "fingerprint": "f", "document": b"", "findings": 0}
            with database.write() as connection:
                connection.execute(select(func.count()).select_from(nodes)).scalar_one()
                connection.execute(insert(nodes).values(**row, reported_at=0.0, changed_at=0.0))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(nodes)).scalar_one() == 80
    database.close()


def test_the_tables_can_be_written_for_postgresql() -> None:
    statements: list[str] = []
    engine = create_mock_engine(
        "postgresql+psycopg://", lambda sql, *_, **__: statements.append(str(sql.compile(dialect=engine.dialect)))
    )
    metadata.create_all(engine, checkfirst=False)
    assert sum("CREATE TABLE" in statement for statement in statements) == len(metadata.tables)
    assert any("BYTEA" in statement for statement in statements)


def test_packing_is_stable() -> None:
    assert documents.pack("text") == documents.pack("text")
    assert documents.unpack(documents.pack("täxt")) == "täxt"

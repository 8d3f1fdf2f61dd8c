"""A server of its own for a benchmark."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def serving() -> Iterator[tuple[str, str]]:
    """(URL, path of the database) of ``synth serve`` on an empty database, until the end."""
    with tempfile.TemporaryDirectory() as folder:
        database = f"{folder}/synth.db"
        words = [sys.executable, "-m", "synth.cli.main", "serve", "--port", "0", "--db", database]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                yield server.stdout.readline().split()[-1], database
            finally:
                server.terminate()

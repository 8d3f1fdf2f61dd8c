"""How ranks find each other before NCCL works: a shared folder, torch's store, or MPI.

Only small values pass through: NCCL's unique id, and after a failure who is still there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from runtime.place import Place
from synth import documents
from synth.errors import InvalidUsage, RemoteError

VARIABLE = "SYNTH_RENDEZVOUS"
"""A folder that all ranks share, empty at the start of the job; default torch's store where torchrun gives one."""


class Store(Protocol):
    """Values that all ranks see."""

    def put(self, key: str, value: bytes) -> None:
        """Publish a value once."""

    def get(self, key: str, deadline: float) -> bytes | None:
        """Wait for a value; None after ``deadline`` seconds."""


class FolderStore:
    """Values as files of a shared folder."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def put(self, key: str, value: bytes) -> None:
        """See :meth:`Store.put`."""
        documents.write(self._folder / quote(key, safe=""), value.hex())

    def get(self, key: str, deadline: float) -> bytes | None:
        """See :meth:`Store.get`."""
        path, until = self._folder / quote(key, safe=""), time.monotonic() + deadline
        while not path.exists():
            if time.monotonic() >= until:
                return None
            time.sleep(0.002)
        return bytes.fromhex(path.read_text())


class TorchStore:
    """The store that torchrun, or rank 0, serves at MASTER_ADDR:MASTER_PORT."""

    def __init__(self, place: Place, variables: Mapping[str, str], deadline: float) -> None:
        distributed: Any = import_module("torch.distributed")
        agent = variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        store = distributed.TCPStore(
            variables["MASTER_ADDR"],
            int(variables["MASTER_PORT"]) + (0 if agent else 1),  # the port itself is init_process_group's
            place.size,
            is_master=not agent and place.rank == 0,
            timeout=timedelta(seconds=deadline),
            wait_for_workers=False,
        )
        attempt = variables.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._store = distributed.PrefixStore(f"synth/{attempt}", store)

    def put(self, key: str, value: bytes) -> None:
        """See :meth:`Store.put`."""
        self._store.set(key, value)

    def get(self, key: str, deadline: float) -> bytes | None:
        """See :meth:`Store.get`."""
        until = time.monotonic() + deadline
        while not self._store.check([key]):
            if time.monotonic() >= until:
                return None
            time.sleep(0.002)
        return bytes(self._store.get(key))


def open_store(place: Place, deadline: float, variables: Mapping[str, str] | None = None) -> Store:
    """The store this job can use.

    Raises:
        InvalidUsage: nothing says where the ranks can meet.
    """
    given = os.environ if variables is None else variables
    if given.get(VARIABLE):
        return FolderStore(given[VARIABLE])
    if "MASTER_ADDR" in given and "MASTER_PORT" in given and find_spec("torch") is not None:
        return TorchStore(place, given, deadline)
    raise InvalidUsage(
        f"NCCL needs a place where the ranks can meet: set {VARIABLE} to a folder that all of them share, "
        "or start the script with torchrun"
    )


def meet(store: Store, name: str, place: Place, deadline: float, value: bytes = b"") -> list[bytes]:
    """Everybody's value, by rank.

    Raises:
        RemoteError: naming the first rank that does not come.
    """
    store.put(f"{name}/{place.rank}", value)
    until, values = time.monotonic() + deadline, []
    for peer in range(place.size):
        found = store.get(f"{name}/{peer}", max(until - time.monotonic(), 0.0))
        if found is None:
            raise RemoteError(
                f"rank {peer} did not arrive within {deadline:g} s; it died or was never launched", rank=peer
            )
        values.append(found)
    return values

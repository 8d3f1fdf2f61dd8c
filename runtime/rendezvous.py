"""How ranks find each other before NCCL works: torch's store, the synth server, or a shared folder.

Only small values pass through: NCCL's unique id, and after a failure who is still there.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from runtime.place import Place
from synth import documents
from synth.client import Environment
from synth.client.http import Connection
from synth.client.rendezvous import Rendezvous
from synth.errors import InvalidUsage, RemoteError

VARIABLE = "SYNTH_RENDEZVOUS"
"""A folder that all ranks share, empty at the start of the job, or ``server:JOB``, a name of this start of this job
on the server of ``SYNTH_SERVER``; default torch's store where torchrun gives one."""


class Store(Protocol):
    """Values that all ranks see."""

    name: str
    """Tells stores of one process apart."""

    def put(self, key: str, value: bytes) -> None:
        """Publish a value once."""

    def get(self, key: str, deadline: float) -> bytes | None:
        """Wait for a value; None after ``deadline`` seconds."""

    def collect(self, name: str, size: int, deadline: float) -> list[bytes | None]:
        """Wait for the values of ``name/0`` to ``name/size-1``; None for those missing after ``deadline`` seconds."""

    def under(self, name: str) -> Store:
        """The part of this store whose keys begin with a name."""


class FolderStore:
    """Values as files of a shared folder."""

    def __init__(self, folder: str) -> None:
        self.name = folder
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

    def collect(self, name: str, size: int, deadline: float) -> list[bytes | None]:
        """See :meth:`Store.collect`."""
        return _one_by_one(self, name, size, deadline)

    def under(self, name: str) -> FolderStore:
        """See :meth:`Store.under`."""
        return FolderStore(str(self._folder / quote(name, safe="")))


class ServerStore:
    """Values at the synth server, under the name of a job; they expire there by themselves.

    Args:
        values: of the job.
        prefix: of all keys.
    """

    def __init__(self, values: Rendezvous, prefix: str = "") -> None:
        self.name = f"server:{values.job}/{prefix}"
        self._values, self._prefix = values, prefix

    def put(self, key: str, value: bytes) -> None:
        """See :meth:`Store.put`.

        Raises:
            ServiceError: the server does not take it, or somebody put another value there.
        """
        self._values.put(self._key(key), value)

    def get(self, key: str, deadline: float) -> bytes | None:
        """See :meth:`Store.get`; the server holds the request until the value is there."""
        return self._values.get(self._key(key), wait=deadline)

    def collect(self, name: str, size: int, deadline: float) -> list[bytes | None]:
        """See :meth:`Store.collect`; one request for all of them, held until the last is there."""
        return self._values.collect(self._key(name), size, wait=deadline)

    def _key(self, key: str) -> str:
        return (self._prefix + key).replace("/", ":")

    def under(self, name: str) -> ServerStore:
        """See :meth:`Store.under`."""
        return ServerStore(self._values, f"{self._prefix}{name}/")


class TorchStore:
    """Values in one of torch's stores.

    Attributes:
        raw: torch's own object.
    """

    def __init__(self, raw: Any, name: str = "torch") -> None:
        self.name, self.raw = name, raw

    @classmethod
    def at_master(cls, place: Place, variables: Mapping[str, str], deadline: float) -> TorchStore:
        """The store that torchrun, or rank 0, serves at MASTER_ADDR:MASTER_PORT."""
        distributed: Any = import_module("torch.distributed")
        agent = variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        address = variables["MASTER_ADDR"], int(variables["MASTER_PORT"])
        attempt = variables.get("TORCHELASTIC_RESTART_COUNT", "0")
        if address not in _served:
            _served[address] = distributed.TCPStore(
                address[0],
                address[1] + (0 if agent else 1),  # the port itself is init_process_group's
                place.size,
                is_master=not agent and place.rank == 0,
                timeout=timedelta(seconds=deadline),
                wait_for_workers=False,
            )
        return cls(_served[address]).under(f"synth/{attempt}")

    @classmethod
    def across(cls, store: Store, place: Place, deadline: float) -> TorchStore:
        """A store of torch's that rank 0 serves, whose address the ranks exchange in a store of another kind.

        Raises:
            RemoteError: a rank does not arrive before the deadline.
        """
        distributed: Any = import_module("torch.distributed")
        options = {"timeout": timedelta(seconds=deadline), "wait_for_workers": False}
        name, raw = f"torch/{turn(store.name)}", None
        if place.rank == 0:
            raw = distributed.TCPStore(own_address(), 0, place.size, is_master=True, **options)
        said = meet(store, name, place, deadline, b"" if raw is None else f"{raw.host}:{raw.port}".encode())[0]
        if raw is None:
            host, _, port = said.decode().rpartition(":")
            raw = distributed.TCPStore(host, int(port), place.size, is_master=False, **options)
        return cls(raw, f"{store.name}/{name}")

    def put(self, key: str, value: bytes) -> None:
        """See :meth:`Store.put`."""
        self.raw.set(key, value)

    def get(self, key: str, deadline: float) -> bytes | None:
        """See :meth:`Store.get`."""
        until = time.monotonic() + deadline
        while not self.raw.check([key]):
            if time.monotonic() >= until:
                return None
            time.sleep(0.002)
        return bytes(self.raw.get(key))

    def collect(self, name: str, size: int, deadline: float) -> list[bytes | None]:
        """See :meth:`Store.collect`."""
        return _one_by_one(self, name, size, deadline)

    def under(self, name: str) -> TorchStore:
        """See :meth:`Store.under`."""
        distributed: Any = import_module("torch.distributed")
        return TorchStore(distributed.PrefixStore(name, self.raw), f"{self.name}/{name}")


def own_address() -> str:
    """A name by which other hosts reach this one, where it has one."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "127.0.0.1"
    return name


_served: dict[tuple[str, int], Any] = {}
"""One connection per address: rank 0 serves it, and cannot serve it twice."""

_turns: Counter[str] = Counter()


def turn(store: str) -> int:
    """How many communicators this process has opened over a store of this name before: 0, 1, ...

    Ranks open the communicators of one store in the same order, so they agree, whatever else each of them opens.
    """
    number = _turns[store]
    _turns[store] += 1
    return number


def open_store(place: Place, deadline: float, variables: Mapping[str, str] | None = None) -> Store:
    """The store this job can use.

    Raises:
        InvalidUsage: nothing says where the ranks can meet.
        InputError: a variable that says how to reach the server cannot be used.
    """
    given = os.environ if variables is None else variables
    where = given.get(VARIABLE, "")
    kind, separator, job = where.partition(":")
    if kind == "server" and separator:
        return _at_server(job, deadline, given)
    if where:
        return FolderStore(where)
    if "MASTER_ADDR" in given and "MASTER_PORT" in given and find_spec("torch") is not None:
        return TorchStore.at_master(place, given, deadline)
    raise InvalidUsage(
        f"the ranks need a place where they can meet: set {VARIABLE} to a folder that all of them share or to "
        "server:JOB, or start the script with torchrun"
    )


def _at_server(job: str, deadline: float, given: Mapping[str, str]) -> ServerStore:
    environment = Environment.read(given)
    if environment.server is None:
        raise InvalidUsage(f"{VARIABLE}=server:{job}: SYNTH_SERVER is not set, so there is no server to meet at")
    if not job:
        raise InvalidUsage(f"{VARIABLE}: names no job; write server:JOB, with a name of this start of this job")
    connection = Connection(environment.server, token=environment.token, ca_file=environment.ca_file)
    return ServerStore(Rendezvous(connection, job, timeout=deadline))


def meet(store: Store, name: str, place: Place, deadline: float, value: bytes = b"") -> list[bytes]:
    """Everybody's value, by rank.

    Raises:
        RemoteError: naming the first rank that does not come.
    """
    store.put(f"{name}/{place.rank}", value)
    values = []
    for peer, found in enumerate(store.collect(name, place.size, deadline)):
        if found is None:
            raise RemoteError(
                f"rank {peer} did not arrive within {deadline:g} s; it died or was never launched", rank=peer
            )
        values.append(found)
    return values


def _one_by_one(store: Store, name: str, size: int, deadline: float) -> list[bytes | None]:
    until = time.monotonic() + deadline
    return [store.get(f"{name}/{peer}", max(until - time.monotonic(), 0.0)) for peer in range(size)]

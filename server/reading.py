"""Topologies as they come in: limits first, then the checks that may take long, in a child process when large."""

from __future__ import annotations

from server.context import Context
from server.errors import TooManyDevices, TooManyLinks
from server.settings import Settings
from server.store.topologies import Stored
from server.tasks.topologies import describe
from synth import topology
from synth.documents import Json

INLINE = 1000
"""A topology of at most so many devices and links together is checked at once, a larger one in a child process."""


def read_topology(context: Context, document: Json) -> Json:
    """Check a topology document; see :func:`server.tasks.topologies.read_topology`.

    Raises:
        InputError: it is no usable topology, or larger than accepted.
    """
    size = check_size(context.settings, document)
    if size <= INLINE:
        return describe(topology.from_document(document, subject="body"))
    return context.perform("read_topology", {"document": document})


def check_size(settings: Settings, document: Json, *, where: str = "body#") -> int:
    """Devices and links together.

    Raises:
        TooManyDevices, TooManyLinks: more than accepted.
    """
    devices, links = (_length(document, key) for key in ("devices", "links"))
    if devices > settings.max_devices:
        raise TooManyDevices(
            f"{where}/devices: has {devices} items; at most {settings.max_devices} are accepted",
            subject=f"{where}/devices",
        )
    if links > settings.max_links:
        raise TooManyLinks(
            f"{where}/links: has {links} items; at most {settings.max_links} are accepted", subject=f"{where}/links"
        )
    return devices + links


def _length(document: Json, key: str) -> int:
    value = document.get(key) if isinstance(document, dict) else None
    return len(value) if isinstance(value, list) else 0


def stored_from(described: Json, now: float) -> Stored:
    """What the database keeps of a checked topology."""
    return Stored(
        digest=described["digest"],
        fingerprint=described["fingerprint"],
        name=described["name"],
        devices=described["devices"],
        gpus=len(described["places"]),
        links=described["links"],
        places=tuple((id, place) for id, place in described["places"]),
        text=described["text"],
        created_at=now,
    )

"""Slurm's ``topology.conf`` (tree and block) and ``topology.yaml``."""

from __future__ import annotations

import re
from typing import Any

from probe.network.model import Network, expand_hosts
from synth.errors import CaptureError


def read_conf(text: str, *, subject: str) -> Network:
    """A ``topology.conf``.

    Raises:
        CaptureError: a line has neither a switch nor a block, or the tree is no tree.
    """
    leaves: dict[str, str] = {}
    parents: dict[str, str] = {}
    blocks: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = dict(re.findall(r"(\w+)=(\S+)", line.partition("#")[0]))
        keys = {key.lower(): value for key, value in words.items()}
        name = keys.get("switchname") or keys.get("blockname")
        if not keys or "blocksizes" in keys:
            continue
        if name is None:
            raise CaptureError(
                f"{subject}: line {number} has neither SwitchName nor BlockName; it is no topology.conf",
                subject=subject,
            )
        if "blockname" in keys:
            blocks.append(name)
        _put(leaves, expand_hosts(keys.get("nodes", ""), subject), name, subject)
        _put(parents, expand_hosts(keys.get("switches", ""), subject), name, subject)
    return _network("Slurm topology.conf", leaves, parents, blocks, subject)


def read_yaml(document: Any, *, subject: str) -> Network:
    """A ``topology.yaml``, already parsed: the topology marked as default, or else the first.

    Raises:
        CaptureError: it has no topology that says anything.
    """
    entries = [entry for entry in document if isinstance(entry, dict) and "topology" in entry]
    if not entries:
        raise CaptureError(f"{subject}: holds no named topology", subject=subject)
    chosen = next((entry for entry in entries if entry.get("cluster_default") is True), entries[0])
    leaves: dict[str, str] = {}
    parents: dict[str, str] = {}
    blocks: list[str] = []
    if chosen.get("flat"):
        return Network(source="Slurm topology.yaml", default="fabric")
    for entry in _list(_dict(chosen.get("tree")).get("switches")):
        name = str(_dict(entry).get("switch", ""))
        _put(leaves, expand_hosts(str(_dict(entry).get("nodes") or ""), subject), name, subject)
        _put(parents, expand_hosts(str(_dict(entry).get("children") or ""), subject), name, subject)
    for entry in _list(_dict(chosen.get("block")).get("blocks")):
        name = str(_dict(entry).get("block", ""))
        blocks.append(name)
        _put(leaves, expand_hosts(str(_dict(entry).get("nodes") or ""), subject), name, subject)
    return _network("Slurm topology.yaml", leaves, parents, blocks, subject)


def _put(table: dict[str, str], names: list[str], parent: str, subject: str) -> None:
    for name in names:
        if table.setdefault(name, parent) != parent:
            raise CaptureError(
                f"{subject}: {name} stands under {table[name]} and under {parent}; each has one switch above it",
                subject=name,
            )


def _network(source: str, leaves: dict[str, str], parents: dict[str, str], blocks: list[str], subject: str) -> Network:
    if not leaves:
        raise CaptureError(f"{subject}: places no node", subject=subject)
    tops = {name for name in (*leaves.values(), *parents.values()) if name not in parents}
    for name in parents:
        seen, here = {name}, name
        while here in parents:
            here = parents[here]
            if here in seen:
                raise CaptureError(f"{subject}: the switch {name} is above itself", subject=name)
            seen.add(here)
    if blocks and len(tops) > 1:  # blocks are joined by a network that the file does not describe
        parents |= dict.fromkeys(tops, "fabric")
    return Network(source=source, leaves=leaves, parents=parents)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

"""topograph's documents: the graph engine's JSON, its YAML models, and the labels it puts on Kubernetes nodes."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from probe.network.model import Network, expand_hosts
from synth.errors import CaptureError

_DOMAINS = (
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "nvidia.com/gpu.clique",
    "nvlink",
)
_TIERS = ("network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/core")
_TIER = re.compile(r"fabric\.topograph\.run/tier-([0-9]{1,2})")


def read_graph(document: Any, *, subject: str) -> Network:
    """The graph engine's JSON: ``{"instances": [{id, network_layers: [closest first], labels}]}``.

    Raises:
        CaptureError: an instance has no id, or layers contradict each other.
    """
    places: dict[str, list[str]] = {}
    domains: dict[str, str] = {}
    for instance in document["instances"] if isinstance(document.get("instances"), list) else []:
        if not isinstance(instance, dict) or not isinstance(instance.get("id"), str):
            raise CaptureError(f"{subject}: an instance has no id; topograph gives every instance one", subject=subject)
        layers = instance.get("network_layers") or []
        places[instance["id"]] = [str(layer) for layer in layers] if isinstance(layers, list) else []
        labels = {**_dict(instance.get("attributes")), **_dict(instance.get("labels"))}
        if domain := _domain(labels):
            domains[instance["id"]] = domain
    return _network("topograph graph", places, domains, subject)


def read_labels(document: Any, *, subject: str) -> Network:
    """Kubernetes nodes (``kubectl get nodes -o json``) with topograph's labels.

    Raises:
        CaptureError: no node carries such a label.
    """
    places: dict[str, list[str]] = {}
    domains: dict[str, str] = {}
    for item in document["items"] if isinstance(document.get("items"), list) else []:
        metadata = _dict(_dict(item).get("metadata"))
        name, labels = metadata.get("name"), _dict(metadata.get("labels"))
        if not isinstance(name, str):
            continue
        tiers = sorted((int(m[1]), str(value)) for key, value in labels.items() if (m := _TIER.fullmatch(str(key))))
        layers = [value for _, value in tiers] or [str(labels[key]) for key in _TIERS if key in labels]
        if layers:
            places[name] = layers
        if domain := _domain(labels):
            domains[name] = domain
    return _network("topograph node labels", places, domains, subject)


def read_model(document: Any, *, subject: str) -> Network:
    """A YAML model: ``switches`` with their ``switches``, ``blocks`` with ``switch``, ``nodes`` and a domain.

    Raises:
        CaptureError: it places no node.
    """
    leaves: dict[str, str] = {}
    parents: dict[str, str] = {}
    domains: dict[str, str] = {}
    for name, entry in _dict(document.get("switches")).items():
        for below in _dict(entry).get("switches") or []:
            for switch in expand_hosts(str(below), subject):
                parents[switch] = str(name)
    for block in document.get("blocks") or []:
        told = _dict(block)
        nodes = told.get("nodes") or []
        labels = {**_dict(told.get("labels")), **_dict(told.get("annotations"))}
        domain = next((str(value) for key, value in labels.items() if str(key).endswith("/domain")), None)
        for text in nodes if isinstance(nodes, list) else [nodes]:
            for node in expand_hosts(str(text), subject):
                leaves[node] = str(told.get("switch", "fabric"))
                if domain:
                    domains[node] = domain
    if not leaves:
        raise CaptureError(f"{subject}: places no node", subject=subject)
    return Network(source="topograph model", leaves=leaves, parents=parents, domains=domains)


def _network(source: str, places: dict[str, list[str]], domains: dict[str, str], subject: str) -> Network:
    leaves = {node: layers[0] for node, layers in places.items() if layers}
    if not leaves and not domains:
        raise CaptureError(f"{subject}: places no node; it has no topograph labels", subject=subject)
    parents: dict[str, str] = {}
    for layers in places.values():
        for below, above in pairwise(layers):
            if below != above and parents.setdefault(below, above) != above:
                raise CaptureError(
                    f"{subject}: the switch {below} is under {parents[below]} and under {above}", subject=below
                )
    for start in parents:
        here, steps = start, 0
        while here in parents and steps <= len(parents):
            here, steps = parents[here], steps + 1
        if steps > len(parents):
            raise CaptureError(f"{subject}: the switch {start} is above itself", subject=start)
    return Network(
        source=source, leaves=leaves, parents=parents, domains=domains, default="fabric" if not leaves else None
    )


def _domain(labels: dict[str, Any]) -> str | None:
    """An NVLink domain; topograph's sentinel clique 32766 means that there is none."""
    value = next((str(labels[key]) for key in _DOMAINS if labels.get(key)), None)
    return None if value is None or value.endswith(".32766") else value


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

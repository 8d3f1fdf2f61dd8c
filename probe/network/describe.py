"""The small description people write themselves, and finding out what kind of description a file is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probe.network import infiniband, slurm, topograph
from probe.network.model import Network
from synth import documents
from synth.errors import CaptureError, DocumentError
from synth.units import parse_size

SHAPES = ("flat", "rails", "isolated-rails", "leaf-spine")
MAX_RAILS = 64

_KEYS = {"network", "rate", "latency_ns", "nodes_per_leaf", "oversubscription"}


def read(name: str) -> Network:
    """A network from a word (``flat``, ``rails``, ``isolated-rails``, ``leaf-spine:4:2``) or a file of any known kind.

    Raises:
        CaptureError: it is neither.
        InputError: the file cannot be read.
    """
    word, *numbers = name.split(":")
    if word in SHAPES and not Path(name).exists():
        return _from_word(name, word, numbers)
    text = documents.read_bytes(name).decode("utf-8", "replace")
    return parse(text, subject=name)


def parse(text: str, *, subject: str) -> Network:
    """A network from the text of a file.

    Raises:
        CaptureError: it is of no known kind or contradicts itself.
    """
    if re.search(r"^\s*(?:SwitchName|BlockName)\s*=", text, re.M | re.I):
        return slurm.read_conf(text, subject=subject)
    if re.search(r"^(?:Switch|Ca)\s+[0-9]+ \"[SH]-", text, re.M):
        return infiniband.read(text, subject=subject)
    document = _json(text, subject) if text.lstrip().startswith("{") else _yaml(text, subject)
    if isinstance(document, list):
        return slurm.read_yaml(document, subject=subject)
    if isinstance(document, dict):
        if "instances" in document:
            return topograph.read_graph(document, subject=subject)
        if "items" in document:
            return topograph.read_labels(document, subject=subject)
        if "switches" in document or "blocks" in document:
            return topograph.read_model(document, subject=subject)
        if "network" in document:
            return _described(document, subject)
    raise CaptureError(
        f"{subject}: is no network description; it reads synth's own (network: {' | '.join(SHAPES)}), Slurm's "
        "topology.conf and topology.yaml, topograph's graph, model and node labels, and ibnetdiscover",
        subject=subject,
    )


def _json(text: str, subject: str) -> Any:
    try:
        return documents.parse(text, subject=subject)
    except DocumentError as error:
        raise CaptureError(error.message, subject=subject) from None


def _yaml(text: str, subject: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise CaptureError(
            f"{subject}: reading YAML needs PyYAML; install synth with its extra probe", subject=subject
        ) from None
    if len(text) > 4_000_000:
        raise CaptureError(f"{subject}: is larger than any network description", subject=subject)
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        where = getattr(error, "problem_mark", None)
        place = f" (line {where.line + 1}, column {where.column + 1})" if where else ""
        raise CaptureError(f"{subject}: is not well-formed YAML{place}", subject=subject) from None


def _from_word(name: str, word: str, numbers: list[str]) -> Network:
    document: dict[str, Any] = {"network": word}
    for key, number in zip(("nodes_per_leaf", "oversubscription"), numbers, strict=False):
        if not re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,6})?", number):
            raise CaptureError(f"--network {name}: {number!r} is no number", subject=name)
        document[key] = float(number)
    return _described(document, f"--network {name}")


def _described(document: Mapping[str, Any], subject: str) -> Network:
    unknown = set(map(str, document)) - _KEYS
    if unknown:
        known = ", ".join(sorted(_KEYS))
        raise CaptureError(f"{subject}: has the key {min(unknown)!r}; the keys are {known}", subject=subject)
    shape = document["network"]
    if shape not in SHAPES:
        raise CaptureError(f"{subject}: network is {shape!r}; must be one of {', '.join(SHAPES)}", subject=subject)
    rate = document.get("rate", 0)
    bytes_per_s = float(parse_size(rate, subject=subject)) if isinstance(rate, str) else _number(rate, "rate", subject)
    latency = _number(document.get("latency_ns", 1300), "latency_ns", subject)
    per_leaf = int(_number(document.get("nodes_per_leaf", 0), "nodes_per_leaf", subject))
    over = _number(document.get("oversubscription", 1), "oversubscription", subject)
    if shape == "leaf-spine" and (per_leaf < 1 or over <= 0):
        raise CaptureError(
            f"{subject}: leaf-spine needs nodes_per_leaf of at least 1 and oversubscription above 0", subject=subject
        )
    rails = tuple(f"rail{number}" for number in range(MAX_RAILS)) if "rails" in shape else ()
    return Network(
        source="description",
        rails=rails,
        parents=dict.fromkeys(rails, "spine") if shape == "rails" else {},
        nodes_per_leaf=per_leaf if shape == "leaf-spine" else 0,
        default="fabric" if shape == "flat" else None,
        bytes_per_s=bytes_per_s,
        latency_ns=latency,
        oversubscription=over,
    )


def _number(value: Any, key: str, subject: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise CaptureError(
            f"{subject}: {key} is {documents.shorten(value)}; must be a number of at least 0", subject=subject
        )
    return float(value)

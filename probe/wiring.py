"""From NVLink lane counts per pair to wires: point to point, or every GPU to an NVSwitch.

A matrix says NV12 for a pair in both cases. Lanes decide: a GPU that shows 12 lanes to each of seven peers would need
84 of its own; so they are one and the same 12 lanes into a switch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from probe.facts import SWITCHED, Bundle, Facts, Gpu
from probe.findings import finding
from probe.rates import model_of
from synth.topology import Finding
from synth.topology.model import abridge

FULL_LANES = (4, 6, 12, 18)
"""NVLinks of a whole GPU: P100, V100, A100, H100 and later (product briefs)."""


def with_bundles(facts: Facts) -> Facts:
    """The same facts with NVLink bundles, derived from the paths where the source did not list them."""
    if facts.bundles is not None:
        return facts
    bundles: list[Bundle] = []
    findings: list[Finding] = []
    for number, island in enumerate(_islands(facts)):
        wired, noticed = _wire(facts, island)
        bundles += [replace(b, peer=f"{SWITCHED}{number}") if b.peer == SWITCHED else b for b in wired]
        findings += noticed
    findings += _missing_pairs(facts, bundles) + _odd_ones(facts, bundles)
    return replace(facts, bundles=tuple(bundles), findings=facts.findings + tuple(findings))


def _lanes(facts: Facts, a: str, b: str) -> int | None:
    path = facts.path(a, b)
    return None if path is None else path.lanes


def _islands(facts: Facts) -> list[list[Gpu]]:
    """GPUs that NVLink joins, directly or over others."""
    islands: list[list[Gpu]] = []
    left = list(facts.gpus)
    while left:
        island = [left.pop(0)]
        for member in island:
            joined = [gpu for gpu in left if _lanes(facts, member.name, gpu.name)]
            island += joined
            left = [gpu for gpu in left if gpu not in joined]
        if len(island) > 1:
            islands.append(sorted(island, key=facts.gpus.index))
    return islands


def _wire(facts: Facts, island: Sequence[Gpu]) -> tuple[list[Bundle], list[Finding]]:
    names = [gpu.name for gpu in island]
    seen = {(a, b): _lanes(facts, a, b) for a in names for b in names if a != b}
    unread = [f"{a}-{b}" for (a, b), lanes in seen.items() if lanes is None and names.index(a) < names.index(b)]
    widest = {a: max(seen[a, b] or 0 for b in names if b != a) for a in names}
    total = {a: sum(seen[a, b] or 0 for b in names if b != a) for a in names}
    models = [model_of(gpu) for gpu in island]
    limits = [18 if model is None or not model.lanes else model.lanes for model in models]
    over = any(total[name] > limit for name, limit in zip(names, limits, strict=True))
    shared = all(lanes is None or lanes == min(widest[a], widest[b]) for (a, b), lanes in seen.items())
    findings = _impossible(island, widest)
    uniform = len(set(widest.values())) == 1
    if over and shared:
        switched = True
    elif over:
        findings.append(
            finding(
                "too-many-lanes",
                names[0],
                f"{abridge(names)} show more NVLinks than their generation has, yet not as a switch would",
            )
        )
        switched = False
    else:
        switched, unsure = _decide(island, shared and uniform, next(iter(widest.values())), total[names[0]])
        findings += unsure
    if unread:
        what = "behind the same switch" if switched else "not joined by NVLink"
        findings.append(finding("pairs-unread", unread[0], f"{abridge(unread)} were not read; taken as {what}"))
    if switched:
        if not uniform:
            fewer = [f"{name} ({widest[name]})" for name in names if widest[name] < max(widest.values())]
            findings.append(
                finding("nvlink-fewer", fewer[0].split()[0], f"{abridge(fewer)} show fewer NVLinks than their siblings")
            )
        return [Bundle(gpu=name, peer=SWITCHED, lanes=widest[name]) for name in names], findings
    return [Bundle(gpu=a, peer=b, lanes=lanes) for (a, b), lanes in seen.items() if lanes], findings


def _decide(island: Sequence[Gpu], even: bool, lanes: int, total: int) -> tuple[bool, list[Finding]]:
    """Switched or direct, where the lane counts would allow both."""
    models = [model_of(gpu) for gpu in island]
    known = [model for model in models if model is not None]
    if len(known) == len(island):
        if even and all(model.switched and model.lanes == lanes for model in known):
            return True, []
        return False, []
    if not even or (len(island) > 2 and total in FULL_LANES) or (len(island) == 2 and lanes < min(8, FULL_LANES[-1])):
        return False, []
    names = [gpu.name for gpu in island]
    switched = len(island) > 2
    how = "as behind a switch" if switched else "as a direct link"
    return switched, [
        finding(
            "wiring-unknown",
            names[0],
            f"{abridge(names)} with NV{lanes} may be joined directly or through a switch; modelled {how}",
        )
    ]


def _impossible(island: Sequence[Gpu], widest: dict[str, int]) -> list[Finding]:
    found = []
    for gpu in island:
        model = model_of(gpu)
        if model is None:
            continue
        if model.lanes == 0:
            text = f"{gpu.name} ({gpu.model}) shows NV{widest[gpu.name]}, but this model has no NVLink"
            found.append(finding("nvlink-impossible", gpu.name, text))
        elif widest[gpu.name] > model.lanes:
            text = f"{gpu.name} ({gpu.model}) shows NV{widest[gpu.name]}, but this model has {model.lanes} NVLinks"
            found.append(finding("too-many-lanes", gpu.name, text))
    return found


def _missing_pairs(facts: Facts, bundles: Sequence[Bundle]) -> list[Finding]:
    """Pairs of GPUs with direct NVLinks that have none between them."""
    direct = {(bundle.gpu, bundle.peer) for bundle in bundles if not bundle.peer.startswith(SWITCHED)}
    names = [gpu.name for gpu in facts.gpus if any(gpu.name == one for one, _ in direct)]
    missing = [f"{a}-{b}" for i, a in enumerate(names) for b in names[i + 1 :] if (a, b) not in direct]
    if not missing:
        return []
    return [finding("nvlink-mesh-partial", missing[0], f"NVLink does not join {abridge(missing, 12)}; those use PCIe")]


def _odd_ones(facts: Facts, bundles: Sequence[Bundle]) -> list[Finding]:
    """GPUs without NVLink beside siblings that have it."""
    linked = {bundle.gpu for bundle in bundles}
    without = [gpu.name for gpu in facts.gpus if gpu.name not in linked]
    models = {gpu.model for gpu in facts.gpus}
    if not without or len(linked) < 2 * len(without) or len(models) > 1:
        return []
    return [
        finding(
            "gpu-outside-fabric",
            name,
            f"{name} has no NVLink although {abridge(sorted(linked))} have; check its fabric registration, reset it, "
            "and plan without it until then",
        )
        for name in without
    ]

"""Expert placements as serving systems read and write them.

- EPLB: ``phy2log``, ``log2phy``, ``logcnt``, as its function returns them.
- SGLang: the JSON that ``--init-expert-location`` takes, ``{"physical_to_logical_map": [[..]]}`` with one row per
  hidden layer, layers without experts included.
- vLLM: the three tables of its EPLB state, ``logical_to_physical_map`` padded with -1 to redundant experts + 1.
- vLLM Ascend: the ``expert_map_path`` file, experts by layer and device.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from synth.documents import Fields, Json
from synth.errors import DocumentError, LimitError

MOST_NUMBERS = 50_000_000


def to_eplb(phy2log: np.ndarray, log2phy: np.ndarray, logcnt: np.ndarray) -> dict[str, Json]:
    """EPLB's three maps."""
    return {"phy2log": phy2log.tolist(), "log2phy": log2phy.tolist(), "logcnt": logcnt.tolist()}


def to_sglang(phy2log: np.ndarray, log2phy: np.ndarray, logcnt: np.ndarray, *, dense: int = 0) -> dict[str, Json]:
    """SGLang's initial expert location.

    Args:
        phy2log: [layers, slots] of the layers with experts.
        log2phy: not needed; SGLang derives it.
        logcnt: [layers, experts].
        dense: first layers of the model that have no experts; SGLang wants a row for them too, its trivial one.
    """
    slots, experts = phy2log.shape[1], logcnt.shape[1]
    trivial = (np.arange(slots) % experts).tolist()
    return {"physical_to_logical_map": [trivial] * dense + phy2log.tolist()}


def to_vllm(phy2log: np.ndarray, log2phy: np.ndarray, logcnt: np.ndarray) -> dict[str, Json]:
    """VLLM's EPLB state."""
    redundant = phy2log.shape[1] - logcnt.shape[1]
    padded = np.full((*log2phy.shape[:2], redundant + 1), -1, dtype=np.int64)
    padded[:, :, : log2phy.shape[2]] = log2phy
    return {
        "physical_to_logical_map": phy2log.tolist(),
        "logical_to_physical_map": padded.tolist(),
        "logical_replica_count": logcnt.tolist(),
    }


def to_vllm_ascend(phy2log: np.ndarray, ranks: int) -> dict[str, Json]:
    """The expert map file of vLLM Ascend."""
    layers = phy2log.reshape(len(phy2log), ranks, -1).tolist()
    return {
        "moe_layer_count": len(layers),
        "layer_list": [
            {
                "layer_id": layer,
                "device_count": ranks,
                "device_list": [
                    {"device_id": device, "device_expert": experts} for device, experts in enumerate(devices)
                ],
            }
            for layer, devices in enumerate(layers)
        ],
    }


WRITERS: dict[str, Callable[..., dict[str, Json]]] = {"eplb": to_eplb, "sglang": to_sglang, "vllm": to_vllm}
"""Formats that are written from the three maps alone."""
FORMATS = (*WRITERS, "vllm-ascend")


def read_map(document: Json, *, subject: str) -> np.ndarray:
    """The ``phy2log`` table [layers, slots] of any of these formats.

    Raises:
        DocumentError: it is none of them.
    """
    fields = Fields(document, f"{subject}#")
    if "layer_list" in fields.value:
        layers = [Fields(layer, f"{subject}#/layer_list/{n}") for n, layer in enumerate(fields.items("layer_list"))]
        rows = [
            [
                expert
                for device, item in enumerate(layer.items("device_list"))
                for expert in Fields(item, f"{layer.where}/device_list/{device}").integers("device_expert")
            ]
            for layer in layers
        ]
        return table(rows, f"{subject}#/layer_list", 2, integer=True)
    for key in ("phy2log", "physical_to_logical_map"):
        if key in fields.value:
            return table(fields.items(key), f"{subject}#/{key}", 2, integer=True)
    raise DocumentError(
        f"{subject}: holds no placement; must have phy2log, physical_to_logical_map or layer_list", subject=subject
    )


def read_loads(document: Json, *, subject: str) -> np.ndarray:
    """Loads [layers, experts] from ``{"loads": [[..]]}``, or from SGLang's recorded ``logical_count``.

    ``logical_count`` may have a leading axis of steps, which are added up.

    Raises:
        DocumentError: it is neither.
    """
    fields = Fields(document, f"{subject}#")
    if "loads" in fields.value:
        return table(fields.items("loads"), f"{subject}#/loads", 2)
    if "logical_count" in fields.value:
        counted = fields.items("logical_count")
        steps = bool(counted) and isinstance(counted[0], list) and bool(counted[0]) and isinstance(counted[0][0], list)
        found = table(counted, f"{subject}#/logical_count", 3 if steps else 2)
        return np.asarray(found.sum(axis=0)) if steps else found
    raise DocumentError(f'{subject}: must be {{"loads": [[load of each expert] per layer]}}', subject=subject)


def table(rows: Json, where: str, axes: int, *, integer: bool = False) -> np.ndarray:
    """Nested arrays of finite numbers, at least 0, as one numpy table.

    Raises:
        DocumentError: rows differ in length, or something is not such a number.
    """
    shape = " of ".join(["rows"] * (axes - 1) + ["numbers"])
    try:
        found = np.array(rows)
    except (ValueError, OverflowError):
        raise DocumentError(
            f"{where}: its rows differ in length; must be {shape}, all equally long", subject=where
        ) from None
    if found.size > MOST_NUMBERS:
        raise LimitError(f"{where}: holds {found.size} numbers; at most {MOST_NUMBERS} are accepted", subject=where)
    if found.ndim != axes or not found.size or found.dtype.kind not in ("iu" if integer else "iuf"):
        kind = "integers" if integer else "numbers"
        raise DocumentError(f"{where}: must be {shape}, all {kind}, at least one", subject=where)
    if not np.isfinite(found).all() or (found < 0).any():
        raise DocumentError(f"{where}: holds a negative or infinite number; must be at least 0", subject=where)
    return found

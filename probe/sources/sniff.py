"""Which kind of capture a file is, from its content alone."""

from __future__ import annotations

import re

from probe import facts_document
from probe.facts import Facts
from probe.sources import lstopo, nccl_log, nccl_xml, nvidia_smi
from synth import documents
from synth.errors import CaptureError, DocumentError


def read(data: bytes, *, subject: str) -> Facts:
    """Facts of a capture of any kind that the probe knows.

    Raises:
        CaptureError: it is of no known kind, or cannot be read as what it is.
    """
    head = data[:4096].decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    looks_like_xml = head.startswith("<") or re.match(r"[\w ]*=\"[^\n]*>", head)
    if looks_like_xml and not re.match(r"<(?:div|html|pre|span|code|p)\b", head, re.I):
        if re.search(r"<topology\b|hwloc", head):
            return lstopo.read(data, subject=subject)
        return nccl_xml.read(data, subject=subject)
    if head.startswith("{"):
        return _document(data, subject)
    text = data.decode("utf-8", "replace")
    if re.search(r"^\s*Machine \(|^\s*Package L#", text, re.M):
        return lstopo.read_console(text, subject=subject)
    if nccl_log.present(text):
        return nccl_log.read(text, subject=subject)
    for pattern, what in _OTHERS:
        if re.search(pattern, head, re.M):
            raise CaptureError(f"{subject}: is {what}; give it with --network", subject=subject)
    return nvidia_smi.read(text, subject=subject)


def _document(data: bytes, subject: str) -> Facts:
    try:
        document = documents.parse(data, subject=subject)
    except DocumentError as error:
        raise CaptureError(error.message, subject=subject) from None
    if isinstance(document, dict) and document.get("format") == "synth-topology/1":
        raise CaptureError(
            f"{subject}: is a topology already; show it with synth topo show, or join several with --network",
            subject=subject,
        )
    return facts_document.from_document(document, subject=subject)


_OTHERS = (
    (r"^(?:SwitchName|BlockName)=", "Slurm's topology.conf, which describes a network, not a machine"),
    (r"^(?:switches|blocks|nodes|topology):\s*$", "a network description, not a machine"),
    (r"^vendid=|^Switch\s+[0-9]+ \"", "ibnetdiscover output, which describes a network, not a machine"),
)

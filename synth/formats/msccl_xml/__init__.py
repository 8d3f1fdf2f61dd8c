"""MSCCL XML, the programs that MSCCL, msccl-executor-nccl and RCCL load: read, verified, written, imported."""

from synth.formats.msccl_xml.algorithm import Algorithm
from synth.formats.msccl_xml.dialects import Dialect
from synth.formats.msccl_xml.exporter import from_plan
from synth.formats.msccl_xml.importer import Imported, to_plan
from synth.formats.msccl_xml.reader import load, looks_like_xml, parse
from synth.formats.msccl_xml.verifier import Report, verify
from synth.formats.msccl_xml.writer import dumps

__all__ = [
    "Algorithm",
    "Dialect",
    "Imported",
    "Report",
    "dumps",
    "from_plan",
    "load",
    "looks_like_xml",
    "parse",
    "to_plan",
    "verify",
]

"""Reading MSCCL XML: hostile, huge or truncated files end in one sentence with line and column."""

from __future__ import annotations

import re
import xml.parsers.expat
from pathlib import Path

from synth import documents
from synth.documents import shorten
from synth.errors import DocumentError, LimitError
from synth.formats.msccl_xml.algorithm import Algorithm, Buffer, Gpu, Kind, Step, Threadblock

MAX_BYTES = 64 * 2**20
MAX_ELEMENTS = 500_000
MAX_DEPTH = 16
"""The format nests four deep; elements that no runtime reads may nest a little more."""

_INTEGER = re.compile(r"-?[0-9]{1,18}")
_ROUND = re.compile(r"\s*round ([0-9]{1,9})\s*")
_KINDS = {kind.value: kind for kind in Kind}
_BUFFERS = {buffer.value: buffer for buffer in Buffer}
_NESTING = {"gpu": "algo", "tb": "gpu", "step": "tb"}
_MOST_ATTRIBUTES = 16
_MOST_CHARACTERS = 255


def load(path: str | Path) -> Algorithm:
    """Read a file; errors as :func:`parse` and :func:`synth.documents.read`."""
    return parse(documents.read_bytes(path), subject=str(path))


def looks_like_xml(data: bytes) -> bool:
    """Whether this is XML rather than JSON."""
    return data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<"


def parse(text: str | bytes, *, subject: str = "msccl-xml") -> Algorithm:
    """Read one ``algo`` element of either dialect.

    Raises:
        DocumentError: it is not well-formed, not MSCCL XML, or lacks what no reader can do without.
        LimitError: it is larger than any real program.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(data) > MAX_BYTES:
        raise LimitError(f"{subject}: is larger than {MAX_BYTES} bytes, the most of an MSCCL XML file", subject=subject)
    return _Reader(subject).read(data)


class _Reader:
    """Builds the value while expat walks over the text."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.parser = xml.parsers.expat.ParserCreate()
        self.open: list[str] = []
        self.elements = 0
        self.attributes: dict[str, str] = {}
        self.gpus: list[Gpu] = []
        self.blocks: list[Threadblock] = []
        self.steps: list[Step] = []
        self.head: dict[str, tuple[dict[str, str], int]] = {}
        self.round: int | None = None
        self.skipped: dict[str, None] = {}
        self.faults: dict[str, None] = {}

    def read(self, data: bytes) -> Algorithm:
        parser = self.parser
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.CommentHandler = self.comment
        parser.StartDoctypeDeclHandler = self.refuse_doctype
        parser.XmlDeclHandler = self.declaration
        try:
            parser.Parse(data, True)
        except xml.parsers.expat.ExpatError as error:
            reason = xml.parsers.expat.errors.messages[error.code]
            raise DocumentError(
                f"{self.subject} line {error.lineno} column {error.offset + 1}: is not well-formed XML ({reason}); "
                "it may be truncated or another format",
                subject=self.subject,
            ) from None
        except (LookupError, ValueError) as error:
            raise DocumentError(f"{self.subject}: has an encoding that cannot be read ({error})") from None
        if b"\t" in data:
            self.faults["a tab: attributes must be separated by one blank"] = None
        return self.algorithm()

    def error(self, problem: str) -> DocumentError:
        """Build the error for the place the parser stands at."""
        line, column = self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1
        return DocumentError(f"{self.subject} line {line} column {column}: {problem}", subject=self.subject)

    def refuse_doctype(self, *_: object) -> None:
        raise self.error("declares a document type; MSCCL XML has none")

    def declaration(self, *_: object) -> None:
        self.faults["an XML declaration: the file must begin with <algo"] = None

    def comment(self, text: str) -> None:
        match = _ROUND.fullmatch(text)
        if match:
            self.round = int(match[1])

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.elements += 1
        if self.elements > MAX_ELEMENTS:
            raise LimitError(f"{self.subject}: has more than {MAX_ELEMENTS} elements", subject=self.subject)
        if len(self.open) >= MAX_DEPTH:
            raise self.error(f"is nested deeper than {MAX_DEPTH} elements; MSCCL XML nests four")
        parent = self.open[-1] if self.open else None
        self.open.append(tag)
        if parent is None:
            if tag != "algo":
                raise self.error(f"begins with <{shorten(tag)[1:-1]}>; MSCCL XML begins with <algo>")
            self.attributes = attributes
        elif _NESTING.get(tag) == parent:
            self.begin(tag, attributes)
        elif tag in _NESTING or tag == "algo":
            raise self.error(f"<{tag}> stands in <{shorten(parent)[1:-1]}>; it belongs in <{_NESTING.get(tag)}>")
        else:
            self.skipped[tag] = None
        if len(attributes) > _MOST_ATTRIBUTES:
            self.faults[f"an element with more than {_MOST_ATTRIBUTES} attributes"] = None
        if any(len(part) > _MOST_CHARACTERS for pair in attributes.items() for part in pair):
            self.faults[f"a name or value longer than {_MOST_CHARACTERS} characters"] = None

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        if tag == "step":
            self.steps.append(self.step(attributes, line))
            return
        self.head[tag] = (attributes, line)
        (self.blocks if tag == "gpu" else self.steps).clear()
        self.round = None

    def end(self, tag: str) -> None:
        self.open.pop()
        parent = self.open[-1] if self.open else None
        if parent != _NESTING.get(tag, ""):
            return
        if tag == "tb":
            given, line = self.head["tb"]
            id, send, recv, channel = (self.integer(given, "tb", key) for key in ("id", "send", "recv", "chan"))
            block = Threadblock(id=id, send=send, recv=recv, channel=channel, steps=tuple(self.steps), line=line)
            self.blocks.append(block)
        elif tag == "gpu":
            given, line = self.head["gpu"]
            id, inputs, outputs, scratch = (
                self.integer(given, "gpu", key) for key in ("id", "i_chunks", "o_chunks", "s_chunks")
            )
            self.gpus.append(
                Gpu(
                    id=id,
                    inputs=inputs,
                    outputs=outputs,
                    scratch=scratch,
                    threadblocks=tuple(self.blocks),
                    line=line,
                )
            )

    def step(self, given: dict[str, str], line: int) -> Step:
        kind = _KINDS.get(given.get("type", ""))
        if kind is None:
            wrong = f"is {shorten(given['type'])}" if "type" in given else "is missing"
            raise self.error(f"<step> type {wrong}; must be one of {', '.join(_KINDS)}")
        numbers = [
            self.integer(given, "step", key) for key in ("s", "srcoff", "dstoff", "cnt", "depid", "deps", "hasdep")
        ]
        number, src_offset, dst_offset, count, after_block, after_step, publishes = numbers
        return Step(
            number=number,
            kind=kind,
            src=self.buffer(given, "srcbuf"),
            src_offset=src_offset,
            dst=self.buffer(given, "dstbuf"),
            dst_offset=dst_offset,
            count=count,
            after_block=after_block,
            after_step=after_step,
            publishes=publishes != 0,
            round=self.round,
            line=line,
        )

    def buffer(self, given: dict[str, str], key: str) -> Buffer:
        buffer = _BUFFERS.get(given.get(key, ""))
        if buffer is None:
            wrong = f"is {shorten(given[key])}" if key in given else "is missing"
            raise self.error(f"<step> {key} {wrong}; must be i, o or s")
        return buffer

    def integer(self, given: dict[str, str], tag: str, key: str) -> int:
        text = given.get(key)
        if text is None:
            raise self.error(f"<{tag}> has no {key}; it must be an integer")
        if not _INTEGER.fullmatch(text):
            raise self.error(f"<{tag}> {key} is {shorten(text)}; must be an integer")
        return int(text)

    def algorithm(self) -> Algorithm:
        given = self.attributes

        def number(key: str, default: int) -> int:
            if key not in given:
                return default
            if not _INTEGER.fullmatch(given[key]):
                raise DocumentError(f"{self.subject}: <algo> {key} is {shorten(given[key])}; must be an integer")
            return int(given[key])

        for key in ("coll", "nchunksperloop"):
            if key not in given:
                raise DocumentError(f"{self.subject}: <algo> has no {key}, without which nothing can be checked")
        channels = max((block.channel + 1 for gpu in self.gpus for block in gpu.threadblocks), default=1)
        for key in ("ngpus", "minBytes", "maxBytes"):
            number(key, 0)
        in_place = number("inplace", 0) != 0
        return Algorithm(
            name=given.get("name", ""),
            collective=given["coll"],
            protocol=given.get("proto", ""),
            channels=number("nchannels", channels),
            chunks_per_loop=number("nchunksperloop", 0),
            gpus=tuple(sorted(self.gpus, key=lambda gpu: gpu.id)),
            in_place=in_place,
            out_of_place=number("outofplace", int(not in_place)) != 0,
            attributes=dict(given),
            skipped=tuple(self.skipped),
            faults=tuple(self.faults),
        )

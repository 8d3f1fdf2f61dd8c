"""A small XML tree that keeps line numbers and refuses what no topology file needs (entities, bottomless nesting)."""

from __future__ import annotations

import xml.parsers.expat
from dataclasses import dataclass, field

from synth.errors import CaptureError

MAX_BYTES = 16 * 2**20
MAX_DEPTH = 64
MAX_ELEMENTS = 200_000


@dataclass(slots=True)
class Element:
    """One element: tag, attributes, children, its own text, and the line it starts on."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    text: str = ""


def parse(text: str | bytes, subject: str) -> Element:
    """Parse a whole document.

    Raises:
        CaptureError: it is ill-formed, with line and column, or larger than any topology.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(data) > MAX_BYTES:
        raise CaptureError(f"{subject}: is larger than {MAX_BYTES} bytes, the most of a topology file", subject=subject)
    parser = xml.parsers.expat.ParserCreate("utf-8" if isinstance(text, str) else None)
    stack: list[Element] = []
    roots: list[Element] = []
    count = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(stack) >= MAX_DEPTH or count > MAX_ELEMENTS:
            raise CaptureError(f"{subject}: is nested too deeply or too long for a topology file", subject=subject)
        element = Element(tag, attributes, parser.CurrentLineNumber)
        (stack[-1].children if stack else roots).append(element)
        stack.append(element)

    def characters(data: str) -> None:
        if stack and len(stack[-1].text) < MAX_BYTES:
            stack[-1].text += data

    def refuse(*_: object) -> None:
        raise CaptureError(f"{subject}: declares XML entities; topology files have none", subject=subject)

    parser.StartElementHandler = start
    parser.CharacterDataHandler = characters
    parser.buffer_text = True
    parser.EndElementHandler = lambda _tag: stack.pop()
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data.lstrip(), True)
    except xml.parsers.expat.ExpatError as error:
        skipped = data[: len(data) - len(data.lstrip())].count(b"\n")
        raise CaptureError(
            f"{subject}: is not well-formed XML (line {error.lineno + skipped}, column {error.offset + 1}: "
            f"{xml.parsers.expat.errors.messages[error.code]})",
            subject=subject,
        ) from None
    except (LookupError, ValueError) as error:
        raise CaptureError(f"{subject}: has an encoding that cannot be read ({error})", subject=subject) from None
    return roots[0]

"""Cleaning of pasted terminal text: escape codes, HTML, line ends, and a limit on size."""

from __future__ import annotations

import html
import re

from synth.errors import CaptureError

MAX_CHARACTERS = 4_000_000
"""A node's outputs all together are a few hundred kilobytes."""

# CSI sequences; also those whose ESC byte was lost on the way, which are only believed when they are SGR ("[4m")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b.|\[(?:[0-9]{1,2}(?:;[0-9]{1,3})*)?m")
_TAGS = re.compile(
    r"</?(?:div|pre|code|span|br|p|b|i|tt|td|tr|table|tbody|font|strong|em|a|html|body)\b[^<>]{0,200}/?>", re.I
)


def clean_lines(text: str, subject: str) -> list[str]:
    """Lines of a capture without escape codes, HTML tags, carriage returns and trailing blanks.

    Raises:
        CaptureError: the text is empty, binary, or larger than any machine's output.
    """
    if len(text) > MAX_CHARACTERS:
        raise CaptureError(
            f"{subject}: holds {len(text)} characters; a capture of one machine has at most {MAX_CHARACTERS}",
            subject=subject,
        )
    if "\0" in text:
        raise CaptureError(f"{subject}: is binary; a capture is the text that a tool printed", subject=subject)
    text = _ESCAPES.sub("", text).replace("\ufeff", "").replace("\xa0", " ")
    if "<" in text and re.search(r"<(?:pre|span|code|div|td|br)\b", text):
        text = html.unescape(_TAGS.sub("", text))
    lines = [line.rstrip() for line in re.split(r"\r\n|\n|\r|\x0b|\x0c|\u2028|\x85", text)]
    if not any(lines):
        raise CaptureError(f"{subject}: is empty; a capture is the text that a tool printed", subject=subject)
    return lines

"""Reading and printing of sizes, rates and times; the only module that knows human units.

Inside synth everything is SI: bytes, bytes per second, nanoseconds (``latency_ns``) or seconds.
"""

from __future__ import annotations

import math
import re

from synth.errors import InputError

_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]+)?)\s*([kmgtKMGT]?i?)[bB]?\s*")


def parse_size(text: str, *, subject: str = "size") -> int:
    """Read a size such as ``1000000000``, ``1e9``, ``64MB`` (decimal) or ``64MiB`` (binary).

    Returns:
        bytes, an integer of at least 0 and less than 2**63.

    Raises:
        InputError: the text is not a size.
    """
    match = _SIZE.fullmatch(text)
    scale = None if match is None else (_DECIMAL | _BINARY).get(match[2].lower())
    if match is None or scale is None:
        raise InputError(
            f"{subject}: {text!r} is not a size; write bytes such as 1000000000, 64MB or 64MiB",
            subject=subject,
        )
    value = float(match[1]) * scale
    if not math.isfinite(value) or value >= 2**63:
        raise InputError(f"{subject}: {text!r} is too large; at most 2^63 - 1 bytes", subject=subject)
    return int(match[1]) * scale if match[1].isdigit() else round(value)


def format_bytes(count: float) -> str:
    """Print bytes in decimal units, such as ``1.00 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1000
    return f"{count:.2f} TB"


def format_rate(bytes_per_s: float) -> str:
    """Print a rate in GB/s, such as ``64.00 GB/s``."""
    return f"{bytes_per_s / 1e9:.2f} GB/s"


def format_seconds(seconds: float) -> str:
    """Print a time with the unit that keeps it readable, such as ``15.62 ms``."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns" if seconds else "0 s"

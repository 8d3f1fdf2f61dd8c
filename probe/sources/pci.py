"""Small readings that several sources share: bus ids and integers as tools print them."""

from __future__ import annotations

import re


def bus_id(text: str) -> str:
    """A bus id as sysfs writes it: four digits of domain, lower case."""
    text = text.strip().lower()
    domain, _, rest = text.partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}" if rest and domain.strip("0") == domain[-4:].strip("0") else text


def integer(text: str | None) -> int | None:
    """A decimal integer, also when printed as ``16.0``; None where it is none."""
    match = re.match(r"\s*(-?[0-9]{1,9})(?:\.[0-9]*)?\s*$", text or "")
    return int(match[1]) if match else None

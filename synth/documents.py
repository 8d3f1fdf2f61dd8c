"""Canonical JSON and its digest: the text form of every document synth reads and writes."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from synth.errors import DocumentError, InputError, LimitError

Json = Any
"""What ``json.loads`` gives; every reader narrows it before use."""

MAX_BYTES = 512 * 2**20
"""No document larger than this is read from disk."""


def canonical(document: Json) -> str:
    """Write canonical JSON: sorted keys, no blanks, UTF-8, integers wherever a number is one.

    Raises:
        DocumentError: a number is NaN or infinite.
    """
    try:
        return json.dumps(
            _integral(document), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
    except ValueError as error:
        raise DocumentError("document: holds NaN or an infinite number; only finite numbers can be written") from error


def _integral(value: Json) -> Json:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 and value != 0 else value or 0
    if isinstance(value, Mapping):
        return {key: _integral(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_integral(item) for item in value] if _has_floats(value) else value
    return value


def _has_floats(values: list[Json] | tuple[Json, ...]) -> bool:
    return any(type(item) is not int for item in values)


def digest(document: Json) -> str:
    """SHA-256 of the canonical JSON, lower-case hex."""
    return digest_text(canonical(document))


def digest_text(text: str) -> str:
    """SHA-256 of a text that already is canonical JSON, lower-case hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def parse(text: str | bytes, *, subject: str = "document") -> Json:
    """Read JSON, refusing NaN, infinities, truncation and bottomless nesting.

    Raises:
        DocumentError: the text is not JSON; the message says where it breaks.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise DocumentError(f"{subject}: is nested too deeply to be a synth document", subject=subject) from None
    except json.JSONDecodeError as error:
        raise DocumentError(
            f"{subject}: is not JSON ({error.msg} at line {error.lineno} column {error.colno}); "
            "it may be truncated or another format",
            subject=subject,
        ) from None
    except UnicodeDecodeError:
        raise DocumentError(f"{subject}: is not UTF-8 text", subject=subject) from None
    except ValueError as error:
        raise DocumentError(f"{subject}: is not usable JSON ({error})", subject=subject) from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


def read(path: str | Path) -> Json:
    """Read a JSON file.

    Raises:
        InputError: the file cannot be opened.
        LimitError: it is larger than ``MAX_BYTES``.
        DocumentError: it is not JSON.
    """
    return parse(read_bytes(path), subject=str(path))


def read_bytes(path: str | Path) -> bytes:
    """Read a whole file, with the errors of :func:`read`."""
    subject = str(path)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{subject}: cannot be read ({error.strerror})", subject=subject) from None
    except ValueError:
        raise InputError(f"{subject!r}: is not a file name", subject=subject) from None
    if len(data) > MAX_BYTES:
        raise LimitError(f"{subject}: is larger than {MAX_BYTES} bytes, the most that is read", subject=subject)
    return data


def write(path: str | Path, text: str) -> None:
    """Write a file so that readers see the old content or all of the new, never half of it.

    Raises:
        InputError: the file cannot be written (no folder, no permission, no space).
    """
    target = Path(path)
    temporary = None
    try:
        if target.exists() and not target.is_file():  # a pipe or a device, such as /dev/stdout
            target.write_text(text, encoding="utf-8")
            return
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written ({error.strerror})", subject=str(path)) from None


class Fields:
    """Checked access to one JSON object: each getter names the pointer, what is wrong and what would be right.

    Args:
        value: the parsed JSON.
        where: pointer of the object, such as ``asym8.json#/links/3``.
    """

    def __init__(self, value: Json, where: str) -> None:
        if not isinstance(value, dict):
            raise DocumentError(f"{where}: must be an object, not {kind_of(value)}", subject=where)
        self.value = value
        self.where = where

    def error(self, key: str, problem: str) -> DocumentError:
        """Build, not raise, the error for one key."""
        where = f"{self.where}/{key}"
        return DocumentError(f"{where}: {problem}", subject=where)

    def get(self, key: str, kind: type | tuple[type, ...], wanted: str) -> Json:
        """A required value of the given JSON type."""
        if key not in self.value:
            raise self.error(key, f"is missing; must be {wanted}")
        item = self.value[key]
        if not isinstance(item, kind) or (isinstance(item, bool) and kind is not bool):
            raise self.error(key, f"must be {wanted}, not {kind_of(item)}")
        return item

    def text(self, key: str) -> str:
        """A required string."""
        return str(self.get(key, str, "a string"))

    def optional_text(self, key: str) -> str | None:
        """A string or nothing."""
        return None if self.value.get(key) is None else self.text(key)

    def integer(self, key: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
        """A required integer within bounds."""
        item = self.get(key, int, "an integer")
        if not least <= item <= most:
            raise self.error(key, f"is {shorten(item)}; must be from {least} to {most}")
        return int(item)

    def optional_integer(self, key: str, *, least: int = 0) -> int | None:
        """An integer or nothing."""
        return None if self.value.get(key) is None else self.integer(key, least=least)

    def number(self, key: str, *, positive: bool = False) -> float | int:
        """A required finite number of at least 0, or above 0."""
        item = self.get(key, (int, float), "a number")
        if not 0 <= item <= 1e300 or not math.isfinite(item) or (positive and item == 0):
            raise self.error(key, f"is {shorten(item)}; must be {'above 0' if positive else 'at least 0'} and finite")
        return item  # type: ignore[no-any-return]

    def items(self, key: str, *, most: int | None = None) -> list[Json]:
        """A required array, of at most so many items."""
        item = self.get(key, list, "an array")
        if most is not None and len(item) > most:
            where = f"{self.where}/{key}"
            raise LimitError(f"{where}: has {len(item)} items; at most {most} are accepted", subject=where)
        return item  # type: ignore[no-any-return]

    def integers(self, key: str, *, least: int = 0, most: int = 2**63 - 1) -> list[int]:
        """A required array of integers, each within bounds."""
        values = self.items(key)
        for position, item in enumerate(values):
            if type(item) is not int or not least <= item <= most:
                raise self.error(f"{key}/{position}", f"is {shorten(item)}; must be an integer from {least} to {most}")
        return values

    def object(self, key: str) -> Fields:
        """A required object, itself checked."""
        return Fields(self.get(key, dict, "an object"), f"{self.where}/{key}")

    def format(self, wanted: str) -> None:
        """Check the ``format`` key: same name, same major version; minor differences are ignored keys."""
        given = self.text("format")
        if given != wanted:
            raise self.error("format", f"is {shorten(given)}; this version of synth reads {wanted}")


def kind_of(value: Json) -> str:
    """Name a JSON value's type as people say it."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def shorten(value: object, limit: int = 60) -> str:
    """A value's repr, cut so that a message stays one readable line."""
    text = f"a {value.bit_length()}-bit integer" if isinstance(value, int) and abs(value) >= 2**64 else repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."

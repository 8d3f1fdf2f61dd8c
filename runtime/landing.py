"""Where an operation's result goes: a new array, or the caller's, which may share memory with the input."""

from __future__ import annotations

from typing import Any

from runtime.arrays import Array, flat
from runtime.overlap import shift_of
from synth.errors import InvalidArgument


def landing(source: Array, shape: tuple[int, ...], out: Any) -> tuple[Array, int | None]:
    """The output, and by how many bytes it lies behind the input where the two share memory.

    Args:
        source: the input.
        shape: what the output must have.
        out: what the caller gave; None for a new array.

    Raises:
        InvalidArgument: what the caller gave has another shape, type or place.
    """
    if out is None:
        return source.empty(shape), None
    target = flat(out, name="out")
    if (target.shape, target.element) != (shape, source.element):
        raise InvalidArgument(
            f"out: is {target.element.name} of shape {target.shape}; {source.element.name} of shape {shape} arrives",
            subject="out",
        )
    if type(target.data) is not type(source.data):
        raise InvalidArgument("out: lies in other memory than the input, host or GPU", subject="out")
    return target, shift_of(source.data, target.data)

"""Writing MSCCL XML the way the runtimes' hand-written parsers want it: one blank, double quotes, no declaration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from xml.sax.saxutils import quoteattr

from synth.formats.msccl_xml.algorithm import Algorithm, Step, Threadblock


def dumps(algorithm: Algorithm) -> str:
    """The text of a program; ``algorithm.attributes`` are the attributes of ``algo`` in their order."""
    return "\n".join(_lines(algorithm)) + "\n"


def _lines(algorithm: Algorithm) -> Iterator[str]:
    yield f"<algo {_attributes(algorithm.attributes)}>"
    for gpu in algorithm.gpus:
        sizes = {"id": gpu.id, "i_chunks": gpu.inputs, "o_chunks": gpu.outputs, "s_chunks": gpu.scratch}
        yield f"  <gpu {_attributes(sizes)}>"
        for block in gpu.threadblocks:
            yield from _threadblock(block)
        yield "  </gpu>"
    yield "</algo>"


def _threadblock(block: Threadblock) -> Iterator[str]:
    head = {"id": block.id, "send": block.send, "recv": block.recv, "chan": block.channel}
    yield f"    <tb {_attributes(head)}>"
    round = None
    for step in block.steps:
        if step.round is not None and step.round != round:
            round = step.round
            yield f"      <!-- round {round} -->"
        yield f"      <step {_attributes(_step(step))}/>"
    yield "    </tb>"


def _step(step: Step) -> dict[str, object]:
    return {
        "s": step.number,
        "type": step.kind.value,
        "srcbuf": step.src.value,
        "srcoff": step.src_offset,
        "dstbuf": step.dst.value,
        "dstoff": step.dst_offset,
        "cnt": step.count,
        "depid": step.after_block,
        "deps": step.after_step,
        "hasdep": int(step.publishes),
    }


def _attributes(values: Mapping[str, object]) -> str:
    return " ".join(f"{key}={_quote(str(value))}" for key, value in values.items())


def _quote(text: str) -> str:
    return quoteattr(text.replace('"', "'"))

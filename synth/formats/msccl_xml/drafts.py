"""Steps before they are numbered: threadblocks of one GPU with waits that name steps, fused and then written down.

**Fusing** puts a threadblock that receives and one that sends on what it received into one, whose steps do both
(``rcs``, ``rrcs``): the data is passed on while it arrives, without a wait between threadblocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from synth.formats.msccl_xml.algorithm import NOBODY, Kind, Step, Threadblock

BlockKey = tuple[int, int, int]
"""(send peer, receive peer, channel) of a threadblock."""

StepKey = tuple[BlockKey, int]
"""A step by its threadblock and its position among the drafts."""

_FUSED = {Kind.RECEIVE: Kind.RECEIVE_COPY_SEND, Kind.RECEIVE_REDUCE_COPY: Kind.RECEIVE_REDUCE_COPY_SEND}


@dataclass(slots=True)
class Draft:
    """A step whose number is not known yet, because nops may come before it.

    Attributes:
        step: without number and waits.
        after: steps of other threadblocks it waits for.
        origin: for a send, the step that received exactly what it sends.
    """

    step: Step
    after: list[StepKey]
    origin: StepKey | None = None


Blocks = dict[BlockKey, list[Draft]]


def fuse(blocks: Blocks) -> Blocks:
    """Fuse every sending threadblock, whose messages all come from one receiving one in order, with that one.

    Messages of its own may come first.
    """
    partners: dict[BlockKey, BlockKey] = {}
    for key in sorted(blocks):
        best = _partner(blocks, key, set(partners.values()))
        if best is not None:
            partners[key] = best
    moved: dict[StepKey, StepKey] = {}
    fused: Blocks = {}
    for key in sorted(blocks):
        if key in partners:
            together = (key[0], partners[key][1], key[2])
            fused[together] = list(_interleave(blocks, key, partners[key], together, moved))
        elif key not in partners.values():
            fused[key] = [replace(draft) for draft in blocks[key]]
            moved |= {(key, number): (key, number) for number in range(len(blocks[key]))}
    for key, drafts in fused.items():
        for draft in drafts:
            latest: dict[BlockKey, int] = {}
            for other, number in (moved[wait] for wait in draft.after):
                if other != key:
                    latest[other] = max(number, latest.get(other, NOBODY))
            draft.after = sorted(latest.items())
    return fused


def _partner(blocks: Blocks, key: BlockKey, taken: set[BlockKey]) -> BlockKey | None:
    """The receiving threadblock whose messages this sending one passes on, all of them but the first few, in order."""
    if key[0] == NOBODY:
        return None
    origins = [draft.origin for draft in blocks[key]]
    own = next((number for number, origin in enumerate(origins) if origin is not None), len(origins))
    passed = [origin for origin in origins[own:] if origin is not None]
    if not passed or len(passed) < len(origins) - own or any(draft.after for draft in blocks[key][:own]):
        return None
    other = passed[0][0]
    numbers = [number for _, number in passed]
    rising = all(before < after for before, after in pairwise(numbers))
    if not rising or any(block != other for block, _ in passed) or other in taken or other[2] != key[2]:
        return None
    return other


def _interleave(
    blocks: Blocks, sender: BlockKey, receiver: BlockKey, together: BlockKey, moved: dict[StepKey, StepKey]
) -> Iterator[Draft]:
    """The steps of both in one order; ``moved`` learns where each went."""
    waiting = list(enumerate(blocks[receiver]))
    place = 0

    def receive_until(last: int) -> Iterator[Draft]:
        nonlocal place
        while waiting and waiting[0][0] < last:
            number, draft = waiting.pop(0)
            moved[receiver, number] = (together, place)
            place += 1
            yield replace(draft)

    for number, draft in enumerate(blocks[sender]):
        if draft.origin is None:
            moved[sender, number] = (together, place)
            place += 1
            yield replace(draft)
            continue
        yield from receive_until(draft.origin[1])
        _, arriving = waiting.pop(0)
        moved[sender, number] = moved[receiver, draft.origin[1]] = (together, place)
        place += 1
        step = replace(arriving.step, kind=_FUSED[arriving.step.kind], round=draft.step.round)
        yield Draft(step, [*arriving.after, *draft.after])
    yield from receive_until(len(blocks[receiver]))


def written(blocks: Blocks) -> Iterator[Threadblock]:
    """Threadblocks with all numbers: a step's second and further waits are nops before it."""
    order = {key: id for id, key in enumerate(sorted(blocks))}
    last = {
        key: [end - 1 for end in accumulate(max(len(draft.after), 1) for draft in drafts)]
        for key, drafts in blocks.items()
    }
    awaited = {wait for drafts in blocks.values() for draft in drafts for wait in draft.after}
    for key, id in order.items():
        steps: list[Step] = []
        for place, draft in enumerate(blocks[key]):
            waits = [(order[other], last[other][number]) for other, number in draft.after] or [(NOBODY, NOBODY)]
            for block, number in waits[:-1]:
                steps.append(Step(number=len(steps), kind=Kind.NOP, after_block=block, after_step=number))
            block, number = waits[-1]
            steps.append(
                replace(
                    draft.step,
                    number=len(steps),
                    after_block=block,
                    after_step=number,
                    publishes=(key, place) in awaited,
                )
            )
        yield Threadblock(id=id, send=key[0], recv=key[1], channel=key[2], steps=tuple(steps))

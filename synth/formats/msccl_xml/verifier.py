"""Whether an MSCCL XML program is right: every rule, in the order in which later ones rely on earlier ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from synth.formats.msccl_xml import dialects, schedule, structure
from synth.formats.msccl_xml.algorithm import Algorithm
from synth.formats.msccl_xml.buffers import COLLECTIVES, Buffers, possible_places
from synth.formats.msccl_xml.dialects import Dialect
from synth.formats.msccl_xml.races import check_races
from synth.formats.msccl_xml.values import check_values
from synth.verifier import Violation


@dataclass(frozen=True, slots=True)
class Report:
    """What the verifier found.

    Attributes:
        violations: none means that the program is right, as far as its collective says what right is.
        promise_checked: whether its collective says so.
        refused: for each runtime's dialect, why that runtime would not load the file.
        warnings: what works, but not always.
    """

    violations: tuple[Violation, ...]
    promise_checked: bool
    refused: dict[Dialect, tuple[str, ...]]
    warnings: tuple[str, ...] = ()


def verify(algorithm: Algorithm, dialect: Dialect | None = None) -> Report:
    """Check every rule.

    Args:
        algorithm: as read.
        dialect: the runtime that must be able to load it; by default it is enough that one of them is.

    Raises:
        LimitError: the program is larger than what is checked.
    """
    refused = {each: tuple(dialects.refusals(algorithm, each)) for each in Dialect}
    best = dialect or min(Dialect, key=lambda each: (len(refused[each]), each is not Dialect.V2))
    found = [Violation(rule="dialect", message=f"{best.runtime} {reason}") for reason in refused[best]]
    broken, warnings = check_program(algorithm)
    return Report((*found, *broken), algorithm.collective in COLLECTIVES, refused, tuple(warnings))


def check_program(algorithm: Algorithm) -> tuple[list[Violation], list[str]]:
    """All rules but those of a dialect; a stage runs only when the one before found nothing.

    Returns:
        violations and warnings.
    """
    places = possible_places(algorithm)
    found = check_structure(algorithm, places)
    if found:
        return found, []
    program = schedule.Program(algorithm)
    order, stuck = schedule.run(program, program.slots)
    warnings = [f"with large chunks it may hang: {circle.message}" for circle in stuck]
    if stuck:  # small chunks share a slot; then a connection holds so many whole messages
        order, stuck = schedule.run(program, program.slots * program.longest)
    if stuck:
        return stuck, []
    for buffers in places:
        found += _named(buffers, places, list(check_races(program, buffers, order)))
        found += _named(buffers, places, list(check_values(program, buffers, order)))
    return found, warnings


def check_structure(algorithm: Algorithm, places: list[Buffers]) -> list[Violation]:
    """The rules of :mod:`synth.formats.msccl_xml.structure`."""
    found = list(structure.check_numbers(algorithm))
    if found:
        return found
    if not places:
        found.append(Violation(rule="place", message="the file is usable neither in place nor out of place"))
    found += structure.check_connections(algorithm)
    found += structure.check_dependencies(algorithm)
    for buffers in places[:1]:
        found += structure.check_size(buffers)
    for buffers in places:
        found += _named(buffers, places, list(structure.check_steps(buffers)))
    return found + list(structure.check_messages(algorithm))


def _named(buffers: Buffers, places: list[Buffers], found: list[Violation]) -> list[Violation]:
    """Say which place a violation belongs to where a file is usable in both."""
    if len(places) == 1:
        return found
    place = "in place" if buffers.in_place else "out of place"
    return [replace(violation, message=f"{place}: {violation.message}") for violation in found]

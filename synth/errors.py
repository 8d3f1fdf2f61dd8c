"""Every error synth raises on purpose, in one tree.

SynthError
 +- InputError               something the caller gave cannot be used            (exit 2, HTTP 4xx)
 |   +- DocumentError        a document is not readable or breaks its format
 |   +- TopologyError        a topology contradicts itself or cannot serve the request
 |   +- DemandError          a collective, its ranks or its bytes make no sense
 |   +- PlanError            a plan contradicts itself
 |   +- CaptureError         a probe capture cannot be read as what it claims to be
 |   +- LimitError           the input is larger than what is accepted
 |   +- NotFoundError        a name or digest that nobody knows
 +- InvalidPlan              a plan was read and found to break rules            (exit 1)
 +- SolveError               the solver could not produce a plan
 |   +- Infeasible           no schedule exists, with the reason
 +- ServiceError             the synth server could not be used
 |   +- ServiceUnavailable   it does not answer
 +- RuntimeFault             a running collective failed
     +- InvalidArgument      the call had no effect; everything stays usable
     +- InvalidUsage         not attached, closed, or called from the wrong thread
     +- UnmatchedGroup       the ranks do not agree on group or plan
     +- RemoteError          a peer died or did not answer by its deadline

``code`` is stable and appears in JSON answers and problem documents; ``subject`` names the object at fault
(a file, a device id, a JSON pointer) and is repeated in the message.
"""

from __future__ import annotations

from typing import ClassVar


class SynthError(Exception):
    """Root of the tree. The message is one sentence that says what is wrong and what would be right."""

    code: ClassVar[str] = "synth"

    def __init__(self, message: str, *, subject: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.subject, self.__dict__))


def _rebuild(kind: type[SynthError], message: str, subject: str | None, state: dict[str, object]) -> SynthError:
    error = kind(message, subject=subject)
    error.__dict__.update(state)
    return error


class InputError(SynthError):
    """Something the caller gave cannot be used."""

    code = "input"


class DocumentError(InputError):
    """A document is not readable or breaks its format."""

    code = "document"


class TopologyError(InputError):
    """A topology contradicts itself or cannot serve the request."""

    code = "topology"


class DemandError(InputError):
    """A collective, its ranks or its bytes make no sense."""

    code = "demand"


class PlanError(InputError):
    """A plan contradicts itself."""

    code = "plan"


class CaptureError(InputError):
    """A probe capture cannot be read as what it claims to be."""

    code = "capture"


class LimitError(InputError):
    """The input is larger than what is accepted."""

    code = "limit"


class NotFoundError(InputError):
    """A name or digest that nobody knows."""

    code = "not-found"


class InvalidPlan(SynthError):
    """A plan was read and found to break rules."""

    code = "invalid-plan"


class SolveError(SynthError):
    """The solver could not produce a plan."""

    code = "solve"


class Infeasible(SolveError):
    """No schedule exists; the message says why."""

    code = "infeasible"


class ServiceError(SynthError):
    """The synth server could not be used."""

    code = "service"


class ServiceUnavailable(ServiceError):
    """The synth server does not answer."""

    code = "service-unavailable"


class RuntimeFault(SynthError):
    """A running collective failed."""

    code = "runtime"


class InvalidArgument(RuntimeFault):
    """The call had no effect; communicators and group stay usable."""

    code = "invalid-argument"


class InvalidUsage(RuntimeFault):
    """Not attached, closed, or called from the wrong thread."""

    code = "invalid-usage"


class UnmatchedGroup(RuntimeFault):
    """The ranks do not agree on the group or on the plan."""

    code = "unmatched-group"


class RemoteError(RuntimeFault):
    """A peer died or did not answer by its deadline.

    Attributes:
        rank: the peer that failed, where it is known.
        round: the round of the plan in which it was missed, where it is known.
    """

    code = "remote"

    def __init__(
        self,
        message: str,
        *,
        subject: str | None = None,
        rank: int | None = None,
        round: int | None = None,
    ) -> None:
        super().__init__(message, subject=subject)
        self.rank = rank
        self.round = round

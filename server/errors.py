"""What only the service can say, hung into the tree of :mod:`synth.errors`.

InputError
 +- LimitError
 |   +- BodyTooLarge         the request body is larger than accepted
 |   +- TooManyDevices       the topology has more devices than accepted
 |   +- TooManyLinks         the topology has more links than accepted
 |   +- TooManyRanks         the group has more ranks than accepted
 |   +- TooManySeconds       a longer solve was asked for than accepted
 |   +- TooMuchWork          checking the document takes longer than accepted
 |   +- QueueFull            more jobs are waiting than accepted
 |   +- TooManyJobs          this caller has more unfinished jobs than accepted
 |   +- TooManyValues        this caller has left more values for its ranks than accepted
 +- RequestError             the request does not have the documented shape
 |   +- MediaTypeError       the body is not declared as JSON
 |   +- HostError            the Host header names another host
 +- ValueTaken               another rendezvous value is there already
 +- NoPlan                   nothing answers this request yet, and no job may be started for it
ServiceError
 +- Unauthorized             no token, or one that nobody issued
 +- Forbidden                the token lacks the scope
 +- StorageFull              the database has no space left
 +- StorageUnavailable       the database does not answer
SolveError
 +- SolverCrashed            the solving process died, each time it was tried
 +- SolverTimeout            the solving process outlived its time limit and was stopped
"""

from __future__ import annotations

from synth.errors import InputError, LimitError, NotFoundError, ServiceError, SolveError


class BodyTooLarge(LimitError):
    """The request body is larger than accepted."""

    code = "limit-body"


class TooManyDevices(LimitError):
    """The topology has more devices than accepted."""

    code = "limit-devices"


class TooManyLinks(LimitError):
    """The topology has more links than accepted."""

    code = "limit-links"


class TooManyRanks(LimitError):
    """The group has more ranks than accepted."""

    code = "limit-ranks"


class TooManySeconds(LimitError):
    """A longer solve was asked for than accepted."""

    code = "limit-seconds"


class TooMuchWork(LimitError):
    """Checking the document takes longer or needs more memory than accepted."""

    code = "limit-work"


class QueueFull(LimitError):
    """More jobs are waiting than accepted; try again later."""

    code = "limit-queue"


class TooManyJobs(LimitError):
    """This caller has more unfinished jobs than accepted."""

    code = "limit-jobs"


class TooManyValues(LimitError):
    """This caller has left more rendezvous values than accepted; try again later."""

    code = "limit-rendezvous"


class ValueTaken(InputError):
    """Another rendezvous value is there already."""

    code = "rendezvous-taken"


class RequestError(InputError):
    """The request does not have the documented shape."""

    code = "request"


class MediaTypeError(RequestError):
    """The body is not declared as JSON."""

    code = "media-type"


class HostError(RequestError):
    """The Host header names another host than this one."""

    code = "host"


class NoPlan(NotFoundError):
    """Nothing answers this request yet, and no job may be started for it."""

    code = "no-plan"


class Unauthorized(ServiceError):
    """No token, or one that nobody issued."""

    code = "unauthorized"


class Forbidden(ServiceError):
    """The token lacks the scope that the request needs."""

    code = "forbidden"


class StorageFull(ServiceError):
    """The database has no space left; nothing was changed."""

    code = "storage-full"


class StorageUnavailable(ServiceError):
    """The database does not answer."""

    code = "storage"


class SolverCrashed(SolveError):
    """The solving process died, each time it was tried."""

    code = "solver-crashed"


class SolverTimeout(SolveError):
    """The solving process outlived its time limit and was stopped."""

    code = "solver-timeout"

"""How a request can end. Every request gets exactly one outcome, refusals included."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """The classes that the books are kept in: received = the sum of these + in flight."""

    COMPLETED = "completed"
    REFUSED = "refused"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Outcome(Enum):
    """The value is the machine-readable code that a client sees."""

    COMPLETED = "completed"

    CANCELLED = "cancelled"
    """The client went away."""

    DEADLINE_EXCEEDED = "deadline_exceeded"
    """Not answered in time; whatever still runs for it is dropped."""

    DEADLINE_UNMEETABLE = "deadline_unmeetable"
    """Refused at once: even started now it could not be in time."""

    RATE_LIMITED = "rate_limited"
    """Refused: more than its tenant's own limit lets through."""

    TENANT_QUEUE_FULL = "tenant_queue_full"
    """Refused: its tenant has taken all the room that it may."""

    QUEUE_FULL = "queue_full"
    RECLAIMED = "reclaimed"
    """It waited in room that was lent to its tenant, and whose it is came back for it."""

    OVERLOADED = "overloaded"
    """Refused: the host is short of memory, or it would have been answered too late for the SLO."""

    DRAINING = "draining"
    NO_WORKER = "no_worker"
    """Nothing runs this version, and nothing is starting."""

    UNKNOWN_VERSION = "unknown_version"
    TOO_LARGE = "too_large"
    """It could never be served here: a part exceeds what a batch may hold, or the whole what may wait."""

    WORKER_LOST = "worker_lost"
    MAY_HAVE_RUN = "may_have_run"
    """Its worker was lost, and the model declares that running it twice is not the same as once."""

    POISON_REQUEST = "poison_request"
    """Whatever ran it failed, and all that ran without it did not; or the same content has killed workers of late."""

    CIRCUIT_OPEN = "circuit_open"
    """Refused: the version's workers keep dying, and it is tried again after a while only."""

    MODEL_ERROR = "model_error"
    """The model raised, or broke its contract, on this batch."""

    OUT_OF_MEMORY = "out_of_memory"
    """Even alone it takes more memory than its worker has."""

    INVALID_INPUT = "invalid_input"
    """The model says that the input is at fault."""

    @property
    def kind(self) -> Kind:
        return _KINDS[self]


_KINDS: dict[Outcome, Kind] = {
    Outcome.COMPLETED: Kind.COMPLETED,
    Outcome.CANCELLED: Kind.CANCELLED,
    Outcome.DEADLINE_EXCEEDED: Kind.EXPIRED,
    Outcome.DEADLINE_UNMEETABLE: Kind.REFUSED,
    Outcome.RATE_LIMITED: Kind.REFUSED,
    Outcome.TENANT_QUEUE_FULL: Kind.REFUSED,
    Outcome.QUEUE_FULL: Kind.REFUSED,
    Outcome.RECLAIMED: Kind.REFUSED,
    Outcome.OVERLOADED: Kind.REFUSED,
    Outcome.DRAINING: Kind.REFUSED,
    Outcome.NO_WORKER: Kind.REFUSED,
    Outcome.CIRCUIT_OPEN: Kind.REFUSED,
    Outcome.UNKNOWN_VERSION: Kind.REFUSED,
    Outcome.TOO_LARGE: Kind.REFUSED,
    Outcome.WORKER_LOST: Kind.FAILED,
    Outcome.MAY_HAVE_RUN: Kind.FAILED,
    Outcome.POISON_REQUEST: Kind.FAILED,
    Outcome.MODEL_ERROR: Kind.FAILED,
    Outcome.OUT_OF_MEMORY: Kind.FAILED,
    Outcome.INVALID_INPUT: Kind.FAILED,
}

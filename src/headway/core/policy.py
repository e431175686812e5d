"""What the operator decides. Policies are values; changing one is an event."""

from __future__ import annotations

from enum import Enum

from headway.core.record import record
from headway.core.tenancy import TenantPolicy
from headway.core.units import NEVER, Duration, ms, seconds


class Style(Enum):
    """How a version is scheduled."""

    BATCH = "batch"
    """Fixed cost: parts are batched per call."""

    SEQUENCE = "sequence"
    """Autoregressive: sequences are admitted to an engine that reports its capacity."""


AUTOMATIC_BATCH_TIME: Duration = ms(250)


@record
class BatchPolicy:
    """Rules for one model version.

    max_batch_size: rows in one batch, at least 1.
    equal_lengths: parts of different lengths keep apart: padding would change the model's answers.
    unpadded: the rows of a batch are run end to end, so that it computes the tokens that they have and no more.
    max_batch_tokens: padded tokens in one batch (rows x longest length); 0 = no cap.
    max_batch_bytes: payload of one batch's members, as it travels to the worker; 0 = no cap.
    max_batch_time: predicted run time of one batch (upper quantile). 0 = automatic: see `time_limit`.
    slo: the latency that is aimed for; 0 = none.
    max_queue_delay: the longest a part waits for company while a worker is free (a ceiling).
    derive_delay: where there is an SLO, it is derived from that instead (`Linger`).
    hold: makes the delay a floor too: a part batch waits for it even beside an idle worker.
    deadline_margin: taken off every latest safe start, for what the cost model does not see.
    max_attempts: deaths of workers, while they ran nothing but a part, after which it is given up.
    idempotent: running a part twice is the same as once; else what has begun is never begun again.
    quarantine: for how long content is refused that killed workers.
    hang_floor: the least time after which a worker that has a batch and says nothing is suspected; 0 = never.
    shed: refuse at once who would be late for its deadline or the SLO; else only when its turn comes.
    max_queued_requests, max_queued_rows: bounds on what waits for this version.
    device: what its workers share with those of other versions; "" = they share nothing.
    cores: of the device, that a worker keeps busy while it runs a batch; 0 = none.
    """

    style: Style = Style.BATCH
    max_batch_size: int = 32
    max_batch_tokens: int = 0
    max_batch_bytes: int = 0
    max_batch_time: Duration = 0
    slo: Duration = 0
    max_queue_delay: Duration = ms(5)
    derive_delay: bool = False
    hold: bool = False
    deadline_margin: Duration = ms(1)
    max_queued_requests: int = 100_000
    max_queued_rows: int = 1_000_000
    device: str = ""
    cores: int = 1
    equal_lengths: bool = False
    unpadded: bool = False
    shed: bool = True
    max_attempts: int = 2
    idempotent: bool = True
    quarantine: Duration = seconds(600)
    hang_floor: Duration = seconds(5)

    def exceeds(self, rows: int, tokens: int, size: int) -> bool:
        """Whether a batch is beyond a cap in rows, padded tokens or bytes."""
        return rows > self.max_batch_size or 0 < self.max_batch_tokens < tokens or 0 < self.max_batch_bytes < size

    def is_filled_by(self, rows: int, tokens: int, size: int) -> bool:
        """Whether they reach a cap: nothing more can join."""
        return rows >= self.max_batch_size or 0 < self.max_batch_tokens <= tokens or 0 < self.max_batch_bytes <= size

    def lets_in(self, rows: int, length: int, size: int) -> bool:
        """Whether a part of `size` bytes respects the caps all by itself. One row always does: it cannot be cut."""
        return rows == 1 or not self.exceeds(rows, rows * length, size)

    def time_limit(self, alone: Duration) -> Duration:
        """The cap on a batch's predicted run time, given what its head takes alone; both at the upper quantile.

        Automatic: 250 ms, so that one tenant's backlog does not make everybody wait for ever longer batches,
        but none where batches are held; half of the SLO where there is one: who comes just after a batch has
        begun waits for it and runs in the next. Twice the head alone is allowed in any case.
        """
        if self.max_batch_time:
            return self.max_batch_time
        limit = NEVER if self.hold else AUTOMATIC_BATCH_TIME
        if self.slo:
            limit = min(limit, self.slo // 2)
        return max(limit, 2 * alone)


@record
class ServerPolicy:
    """Rules for all versions together.

    max_queued_bytes: payload held for requests that have no outcome yet.
    patience: class of priority -> how long after its arrival a request without a tighter deadline
        is due. Earliest due first, so a lower class overtakes a later arrival of a higher one once
        it has waited the difference: aging is a constant in the sort key, nothing is ever re-sorted.
    tenants: by name.  others: what holds for one that is not named, each by himself.
    devices: device -> cores that may be in use at once; one that is not named has no limit.
    """

    max_queued_bytes: int = 1 << 30
    patience: tuple[Duration, ...] = (seconds(0.1), seconds(1), seconds(10))
    tenants: tuple[tuple[str, TenantPolicy], ...] = ()
    others: TenantPolicy = TenantPolicy()
    devices: tuple[tuple[str, int], ...] = ()

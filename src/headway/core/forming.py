"""A batch under construction: its members, the caps, who would be harmed, and what company gains."""

from __future__ import annotations

from headway.core.cost import CostModel
from headway.core.policy import BatchPolicy
from headway.core.probing import BUSIEST, SLACK
from headway.core.queue import TenantQueue
from headway.core.record import record
from headway.core.requests import RUNNING, WAITING, QueuedPart
from headway.core.units import NEVER, Duration, Instant

NEARLY = 1 + 1 / 64
"""Where length makes the batch at most so many times as dear, a more urgent part goes before a nearer one."""


@record
class Setting:
    """What a batch is formed for.

    waiting: parts that wait for what the batch takes, the head included.  workers: that share them.
    counted: of those as many as may lengthen the batch: nobody's backlog counts for more than its share of the
        head's tenant's.
    latest_end: when the worker must be free again lest the head of another key be late (NEVER: no matter).
    start: when the batch will begin to run: now, or when what its worker runs is expected to end.
    """

    policy: BatchPolicy
    cost: CostModel
    waiting: int
    counted: int
    workers: int
    latest_end: Instant
    start: Instant


class Forming:
    """rows, tokens, bytes, deadline, oldest: sums, earliest and first arrival of the members.
    length: what each row counts as: the longest of the members; where nothing is padded their mean, rounded up.
    pays: of each member, whether it is charged for: not one that came along where that cost nobody anything.
    filled: a cap, and not the cost, kept somebody out.
    kept: so many of the members are the best batch so far; those behind them are the block on trial.
    is_probe: it is larger than would pay by the cost model, for what is to be learned from it.
    """

    __slots__ = (
        "_cost",
        "_counted",
        "_kept_predicted",
        "_kept_tokens",
        "_others",
        "_predicted",
        "_setting",
        "_time_limit",
        "_trial_alone",
        "_trial_length",
        "_trial_rows",
        "_unpadded",
        "bytes",
        "deadline",
        "filled",
        "is_probe",
        "kept",
        "length",
        "members",
        "oldest",
        "owners",
        "pays",
        "rows",
        "tokens",
    )

    kept: int
    _kept_predicted: Duration
    _kept_tokens: int
    _trial_rows: int
    _trial_length: int
    _trial_alone: Duration

    def __init__(self, head: QueuedPart, owner: TenantQueue, setting: Setting) -> None:
        self._setting = setting
        self._cost = setting.cost
        self._time_limit = setting.policy.time_limit(setting.cost.upper(head.rows, head.length))
        self._others = setting.waiting
        self._counted = setting.counted
        self.members: list[QueuedPart] = []
        self.owners: list[TenantQueue] = []
        self.pays: list[bool] = []
        self._unpadded = setting.policy.unpadded
        self.rows = self.tokens = self.bytes = self.length = 0
        self.deadline = self.oldest = NEVER
        self.filled = self.is_probe = False
        self.add(head, owner)
        self.keep()

    # -- members ---------------------------------------------------------------------------

    def add(self, part: QueuedPart, owner: TenantQueue, pays: bool = True) -> None:
        part.state = RUNNING
        self.members.append(part)
        self.owners.append(owner)
        self.pays.append(pays)
        self.length = self._length_with(part)
        self.rows += part.rows
        self.tokens += part.rows * part.length
        self.bytes += part.bytes
        request = part.request
        if request.deadline < self.deadline:
            self.deadline = request.deadline
        if request.arrived < self.oldest:
            self.oldest = request.arrived
        self._others -= 1
        self._counted -= 1
        self._predicted = self._cost.median(self.rows, self.length)

    def try_on(self, part: QueuedPart, owner: TenantQueue) -> None:
        """Add it to the block on trial."""
        self._trial_rows += part.rows
        if self._unpadded:
            tokens = self.tokens + part.rows * part.length - self._kept_tokens
            self._trial_length = -(-tokens // self._trial_rows)
        elif part.length > self._trial_length:
            self._trial_length = part.length
        self._trial_alone += self._cost.median(part.rows, part.length)
        self.add(part, owner)

    def keep(self) -> None:
        """What is on trial belongs to the batch."""
        self.kept = len(self.members)
        self._kept_predicted = self._predicted
        self._kept_tokens = self.tokens
        self._trial_rows = self._trial_length = 0
        self._trial_alone = 0

    def drop_trial(self) -> None:
        """Give back what is on trial: not a cap, its cost keeps it out."""
        trial, owners = self.members[self.kept :], self.owners[self.kept :]
        if not trial:
            return
        for part in trial:
            part.state = WAITING
        for part, owner in zip(reversed(trial), reversed(owners), strict=True):
            owner.by_length.put_back(part)
            owner.urgent.put_back(part.due, part)
        # `_others` is not told: what a probe may cost was set by worlds in which it was not
        kept, owners, pays = self.members[: self.kept], self.owners[: self.kept], self.pays[: self.kept]
        self.members, self.owners, self.pays = [], [], []
        self.rows = self.tokens = self.bytes = self.length = 0
        self.deadline = self.oldest = NEVER
        self.filled = False
        for part, owner, paid in zip(kept, owners, pays, strict=True):
            self.add(part, owner, paid)

    @property
    def is_full(self) -> bool:
        """A cap is reached."""
        tokens = self.tokens if self._unpadded else self.rows * self.length
        return self.filled or self._setting.policy.is_filled_by(self.rows, tokens, self.bytes)

    def _length_with(self, part: QueuedPart) -> int:
        """What each row would count as with this joiner."""
        if self._unpadded:
            return -(-(self.tokens + part.rows * part.length) // (self.rows + part.rows))
        return part.length if part.length > self.length else self.length

    # -- gains -----------------------------------------------------------------------------

    def best_of_tenant(self, tenant: TenantQueue) -> tuple[QueuedPart | None, int]:
        """Of its neighbours in length on either side and the most urgent it has."""
        index = tenant.by_length
        return self.best_of(index.shorter(self.length), index.longer(self.length), tenant.urgent.first())

    def best_of(
        self, shorter: QueuedPart | None, longer: QueuedPart | None, urgent: QueuedPart | None
    ) -> tuple[QueuedPart | None, int]:
        """Of those that fit the one that lengthens the batch least for what it brings, and its gain.

        The gain may be negative. The most urgent goes before the others where length hardly matters.
        """
        best: QueuedPart | None = None
        best_gain = 0
        for part in (shorter, longer):
            if part is None:
                continue
            gain = self._gain(part)
            if (best is None or gain > best_gain) and self._fits(part, gain):
                best, best_gain = part, gain
        if urgent is None or urgent is best or best is None:
            return best, best_gain
        if self._length_matters(best, urgent):
            return best, best_gain
        gain = self._gain(urgent)
        return (urgent, gain) if self._fits(urgent, gain) else (best, best_gain)

    def _length_matters(self, near: QueuedPart, urgent: QueuedPart) -> bool:
        """Judged by the batch that this one may become. Where nothing is padded nobody's length is another's burden."""
        if self._unpadded:
            return False
        rows = min(self._setting.policy.max_batch_size, self.rows + max(1, self._others))
        longest = max(self.length, near.length, urgent.length)
        shortest = min(self.length, near.length, urgent.length)
        if longest == shortest:
            return False
        return self._cost.median(rows, longest) > NEARLY * self._cost.median(rows, shortest)

    def trial_gains(self) -> bool:
        """Whether the block on trial takes more off everybody's waiting than it adds."""
        if self._setting.policy.hold:
            return True
        added = self._predicted - self._kept_predicted
        saved = self._trial_apart() - added
        joiners = len(self.members) - self.kept
        who_gain = max(joiners, self._counted + joiners)
        return saved * who_gain > added * self.kept * self._setting.workers

    def _trial_apart(self) -> Duration:
        """What those on trial take without this batch, right after it: one by one, together, or in batches
        of its size."""
        cost, rows, length = self._cost, self._trial_rows, self._trial_length
        apart = min(self._trial_alone, cost.median(rows, length))
        kept = self.rows - rows
        if rows > kept:
            apart = min(apart, -(-rows // kept) * cost.median(kept, length))
        return apart

    def is_over(self, gain: int) -> bool:
        """Nobody after a joiner that gains so much can gain: there is no step of the cost ahead."""
        return gain <= 0 and self.rows >= self._cost.steady_from

    def _gain(self, part: QueuedPart) -> int:
        """What one joiner takes off everybody's waiting, in nanoseconds, beside running alone."""
        if self._setting.policy.hold:
            return 1
        cost = self._cost
        length = self._length_with(part)
        added = cost.median(self.rows + part.rows, length) - self._predicted
        saved = cost.median(part.rows, part.length) - added
        return saved * max(1, self._counted) // self._setting.workers - added * len(self.members)

    def is_free(self, part: QueuedPart, before: Duration) -> bool:
        """Whether the batch fits it too, and takes no longer, as good as, than the `before` that it took."""
        longer = self._cost.median(self.rows + part.rows, self._length_with(part))
        return longer <= NEARLY * before and self._fits(part, 1)

    @property
    def predicted(self) -> Duration:
        return self._predicted

    # -- probes ----------------------------------------------------------------------------

    def worth_trying(self, waiting: int) -> int:
        """Rows of a larger batch that tells something new and can be afforded, as far as one can say before it is
        made. 0: none, or it is not time to look.

        waiting: rows that could be in it, the members' own included. Nothing is on trial.
        """
        setting, cost = self._setting, self._cost
        probes = cost.probes
        if waiting <= self.rows or self.is_full or not probes.is_due():
            return 0
        rows = probes.wanted(self.rows, self.length, min(waiting, setting.policy.max_batch_size))
        if not rows or not self._leaves_slack(rows, self.length):
            return 0
        joiners = rows - self.rows
        singly, together = joiners * cost.median(1, self.length), cost.median(joiners, self.length)
        loss = self._loss(joiners, cost.median(rows, self.length) - self._predicted, singly, together)
        return rows if loss <= probes.credit else 0

    def become_probe(self, rows: int, following: QueuedPart | None) -> bool:
        """Keep what is on trial as a probe of so many rows, and pay for it. False: it is not one, or costs too much.

        following: who is served next.
        """
        cost, probes = self._cost, self._cost.probes
        joiners, added = len(self.members) - self.kept, self._predicted - self._kept_predicted
        together = cost.median(self._trial_rows, self._trial_length) if joiners else 0
        loss = self._loss(joiners, added, self._trial_alone, together)
        if (
            self.rows < rows
            or loss > probes.credit
            or not probes.is_stale(self.rows, self.length)
            or not self._leaves_slack(self.rows, self.length, following)
        ):
            return False
        probes.pay(loss)
        probes.count += 1
        self.is_probe = True
        self.keep()
        return True

    def time_spent(self) -> Duration:
        """By all requests together while it runs, as predicted."""
        return self._predicted * (len(self.members) + self._others // self._setting.workers)

    def _loss(self, joiners: int, added: Duration, singly: Duration, together: Duration) -> Duration:
        """What so many joiners add to everybody's waiting, beside the better of running in a batch of their own and
        running one by one, each of which is answered as soon as it is done.

        added: by them to the run of the batch.  singly, together: their run time without it.
        """
        workers = self._setting.workers
        waiting = self._others + len(self.members) - self.kept
        beside_a_batch = (added - together) * joiners
        beside_singles = added * joiners - singly * (joiners + 1) // (2 * workers)
        lost = added - min(singly, together)
        who_loses = waiting * min(1 + waiting, BUSIEST) if lost > 0 else waiting
        return added * self.kept + max(beside_a_batch, beside_singles) + lost * who_loses // workers

    def _leaves_slack(self, rows: int, length: int, following: QueuedPart | None = None) -> bool:
        """Whether everybody would be in time even if the prediction, of a size not run of late, were far off."""
        setting = self._setting
        end = setting.start + SLACK * self._cost.upper(rows, length)
        if end > setting.latest_end or end + setting.policy.deadline_margin > self.deadline:
            return False
        return following is None or end <= following.latest_start

    # -- limits ----------------------------------------------------------------------------

    def has_room_for(self, part: QueuedPart) -> bool:
        """Whether the caps in rows, tokens and bytes allow it."""
        rows, length = self.rows + part.rows, self._length_with(part)
        tokens = self.tokens + part.rows * part.length if self._unpadded else rows * length
        return not self._setting.policy.exceeds(rows, tokens, self.bytes + part.bytes)

    def _fits(self, part: QueuedPart, gain: int) -> bool:
        run_time = self._cost.upper(self.rows + part.rows, self._length_with(part))
        if run_time > self._time_limit or not self.has_room_for(part):
            if gain > 0:
                self.filled = True
            return False
        return not self._harms(part, self._setting.start + run_time)

    def _harms(self, part: QueuedPart, end: Instant) -> bool:
        """Whether somebody who would be in time is late by this joiner: a member, the joiner itself, or the
        head of another key. Who is late anyway is no reason against company."""
        setting = self._setting
        margin, deadline, latest_end = setting.policy.deadline_margin, part.request.deadline, setting.latest_end
        if end + margin <= self.deadline and end + margin <= deadline and end <= latest_end:
            return False
        without = setting.start + self._cost.upper(self.rows, self.length)
        alone = setting.start + self._cost.upper(part.rows, part.length)
        return (
            without + margin <= self.deadline < end + margin
            or without <= latest_end < end
            or alone + margin <= deadline < end + margin
        )

"""What a batch costs whom: charged as predicted when it leaves, settled when it is known how it ended."""

from __future__ import annotations

from headway.core.pool import Pool
from headway.core.workers import RunningBatch, Worker


def settle(worker: Worker, batch: RunningBatch, duration: int) -> None:
    """What was charged as predicted becomes what was measured, in the same proportions."""
    if batch.predicted <= 0:
        return
    error = (duration - batch.predicted) / batch.predicted
    pool = worker.pool
    correct = pool.device.correct
    for account, amount in batch.charges:
        account.pending -= amount
        correct(account, amount * account.weight * error)
    cores = max(1, pool.policy.cores)
    pool.fair.clock.tallies.unsettled += (duration - batch.predicted) * cores
    _tally(batch, duration * cores)


def give_back(batch: RunningBatch, pool: Pool) -> None:
    """It came to nothing."""
    for account, amount in batch.charges:
        account.pending -= amount
        pool.device.correct(account, -amount * account.weight)
    pool.fair.clock.tallies.unsettled -= batch.predicted * max(1, pool.policy.cores)


def leave(batch: RunningBatch, pool: Pool) -> None:
    """Its members have nothing running in it any more."""
    for part in batch.members:
        pool.fair.leave(pool.fair.accounts[part.request.tenant])


def _tally(batch: RunningBatch, service: int) -> None:
    """What it took, to those who pay for it. By weights that changed since it left the parts are a little off, the sum
    is not."""
    parts = [amount * account.weight for account, amount in batch.charges]
    total = sum(parts)
    for (account, _), part in zip(batch.charges, parts, strict=True):
        account.tally.received += int(service * part / total) if total else 0

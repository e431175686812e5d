"""What the core says for the log alone: nothing answers it."""

from __future__ import annotations

import logging

from headway.core.effects import (
    ClearWorker,
    Remedy,
    ReportCircuit,
    ReportMemoryCap,
    ReportStarvation,
    RetryParts,
    SuspectWorker,
)
from headway.core.units import SECOND, Instant

log = logging.getLogger("headway.runtime")

NAMED = 8
"""Parts that a line names; of more it says how many."""

AGAIN = {
    Remedy.AGAIN: "again",
    Remedy.ALONE: "each alone, one at a time",
    Remedy.HALVES: "in halves",
}


def report_starvation(effect: ReportStarvation, now: Instant) -> None:
    if not effect.starves:
        log.info("tenant %s on %s has its share again", effect.tenant, effect.device)
        return
    log.warning(
        "tenant %s starves on %s: it got %.3g s of the device in the last %.3g s and was owed %.3g s%s",
        effect.tenant,
        effect.device,
        effect.received / SECOND,
        effect.window / SECOND,
        effect.owed / SECOND,
        f"; {effect.ahead} is furthest ahead of it and may borrow no more room" if effect.ahead else "",
    )


def report_retry(effect: RetryParts, now: Instant) -> None:
    parts = effect.parts
    names = ", ".join(f"{request}.{part}" for request, part in parts[:NAMED])
    more = f" and {len(parts) - NAMED} more" if len(parts) > NAMED else ""
    log.info("model %s: parts %s%s run %s: %s", effect.version, names, more, AGAIN[effect.how], effect.cause)


def report_circuit(effect: ReportCircuit, now: Instant) -> None:
    if effect.open:
        log.warning(
            "model %s is refused for %.3g s, then tried again: %s", effect.version, effect.lasts / SECOND, effect.cause
        )
    else:
        log.warning("model %s is served again: a batch came back", effect.version)


def report_memory_cap(effect: ReportMemoryCap, now: Instant) -> None:
    most = f"at most {effect.tokens} tokens" if effect.tokens else "as many tokens as they may"
    if effect.failed:
        text = "model %s ran out of memory with a batch of %d tokens; its batches have %s from now on"
        log.warning(text, effect.version, effect.failed, most)
    else:
        log.info("model %s: its batches have %s again, to see whether there is memory for them", effect.version, most)


def report_suspicion(effect: SuspectWorker, now: Instant) -> None:
    log.warning("worker %d is given no new work (batch %d): %s", effect.worker, effect.batch, effect.cause)


def report_recovery(effect: ClearWorker, now: Instant) -> None:
    log.warning("worker %d is well again: it has answered, and is given work as before", effect.worker)

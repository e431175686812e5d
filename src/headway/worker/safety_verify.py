"""The check of batch safety by itself, without a server: a Load message in, a SafetyReport out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

import msgspec

from headway.config.settings import ModelSettings
from headway.core.units import SECOND
from headway.wire.messages import Load
from headway.wire.safety import SafetyReport
from headway.worker import safety, safety_load, warm_up
from headway.worker.errors import LoadError, raised
from headway.worker.executor import BatchExecutor, LoadContext
from headway.worker.executors import create
from headway.worker.log import configure
from headway.worker.safety_subject import Subject

log = logging.getLogger("headway.worker")


class Wanted(msgspec.Struct):
    """seconds: for each of the check and the proof of invariant mode."""

    load: Load
    seconds: float


def verify(message: bytes) -> SafetyReport | None:
    """None where the model does not load; the reason is in the log.

    Made-up inputs are tried on a Python model too, whether it says that it takes them or not: somebody has asked.
    """
    wanted = msgspec.json.decode(message, type=Wanted)
    load = wanted.load
    configure(f"{load.model}/{load.version}")
    try:
        return _check(load, int(wanted.seconds * SECOND))
    except Exception as error:
        log.debug("load failed", exc_info=True)
        log.error("%s", error if isinstance(error, LoadError) else raised(f"{load.model}/{load.version}", error))
        return None


def _check(load: Load, budget: int) -> SafetyReport:
    settings = msgspec.convert(load.settings, ModelSettings)
    context = LoadContext(load.model, load.version, load.path, load.device, load.threads, settings)
    executor = create(load.executor)
    meta = executor.load(context)
    if meta.streaming:
        return SafetyReport(reason=safety_load.STREAMS)
    batched = cast(BatchExecutor, executor)
    subject = Subject(batched, meta, context, takes_made_up=True)
    if settings.warm_up.enabled:
        _warm_up(batched, *warm_up.grid(settings, meta))
    report = safety.check(subject, budget)
    if settings.batch_invariant:
        _, report = safety_load.with_fixed_sizes(subject, report, budget)
    else:
        report = safety_load.as_configured(report, settings)
    batched.unload()
    return report


def _warm_up(executor: BatchExecutor, rows: Sequence[int], lengths: Sequence[int]) -> None:
    """What is served has been warmed up, and may differ by it."""
    try:
        executor.warm_up(rows, lengths, 1)
    except warm_up.NothingRan as nothing:
        log.warning("%s", nothing)

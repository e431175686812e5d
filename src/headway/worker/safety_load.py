"""Between loading and serving: warm-up, the check of batch safety, and the fixed sizes of invariant mode."""

from __future__ import annotations

import logging
from typing import TypeAlias

import msgspec

from headway.config.settings import ModelSettings
from headway.core.ids import Measurement
from headway.core.units import Duration
from headway.wire import safety_text
from headway.wire.messages import ModelMeta
from headway.wire.safety import BATCHED, EQUAL_LENGTHS, OFF, SAFE, UNBATCHED, SafetyReport
from headway.worker import invariant_proof, safety, warm_up
from headway.worker.executor import BatchExecutor, LoadContext
from headway.worker.invariant import InvariantExecutor
from headway.worker.safety_subject import Subject

log = logging.getLogger("headway.worker")

ENOUGH = 0.5
"""Of the planned batches; with fewer a verdict is a guess, and is said louder."""

STREAMS = "a stream has no batches"

Settled: TypeAlias = tuple[BatchExecutor, list[Measurement], SafetyReport]


def settle(executor: BatchExecutor, meta: ModelMeta, context: LoadContext) -> Settled:
    """The executor to serve with, what was measured, what was found. Raises LoadError."""
    settings = context.settings
    subject = Subject(executor, meta, context, getattr(executor, "takes_made_up", True))
    measured: list[Measurement] = []
    problem = ""
    if settings.warm_up.enabled and not settings.batch_invariant:
        measured, problem = _warm_up(executor, meta, context)
    report = SafetyReport(OFF, BATCHED, "not checked: batch_safety is off")
    if settings.batch_safety != "off":
        report = safety.check(subject)
    if settings.batch_invariant:
        executor, report = with_fixed_sizes(subject, report)
        if settings.warm_up.enabled:
            measured, problem = _warm_up(executor, meta, context)
    else:
        report = as_configured(report, settings)
    if problem:
        report = msgspec.structs.replace(report, notes=(*report.notes, problem))
    _tell(report, fine=not problem)
    return executor, measured, report


def as_configured(report: SafetyReport, settings: ModelSettings) -> SafetyReport:
    """What was found is acted upon only where the operator wants that."""
    if settings.batch_safety == "check" or report.mode == BATCHED:
        return report
    reason = f'{report.reason}; yet it is served as configured, for batch_safety is "{settings.batch_safety}"'
    return msgspec.structs.replace(report, mode=BATCHED, reason=reason)


def with_fixed_sizes(
    subject: Subject, report: SafetyReport, budget: Duration = invariant_proof.BUDGET
) -> tuple[BatchExecutor, SafetyReport]:
    """Invariant mode: the executor around it, where it can be kept in batches; else each row alone."""
    if report.mode == UNBATCHED:
        invariant_proof.check_alone(subject)
        return subject.executor, report  # its answers depend on company: alone they have none
    classes = () if report.mode == EQUAL_LENGTHS else invariant_proof.length_classes(subject)
    tokens = subject.settings.batching.max_batch_tokens
    fixed = InvariantExecutor(subject.executor, subject.meta, subject.max_rows, tokens, classes)
    found = invariant_proof.prove(subject, fixed, budget)
    if found.broken is not None or not found.proven:
        why = (
            "not even at a fixed size are its answers bit-equal in all company" if found.broken else "nothing is proven"
        )
        reason = f"batch_invariant: {why}, so each row runs alone"
        return subject.executor, msgspec.structs.replace(report, mode=UNBATCHED, reason=reason, invariant=found)
    fixed.singly = frozenset(found.unproven)
    reason = report.reason if report.verdict == SAFE else f"batch_invariant; {report.reason}"
    return fixed, msgspec.structs.replace(
        report, mode=EQUAL_LENGTHS, reason=reason, length_classes=classes, invariant=found
    )


def _warm_up(executor: BatchExecutor, meta: ModelMeta, context: LoadContext) -> tuple[list[Measurement], str]:
    """What was measured; and why nothing was, where the model failed throughout."""
    rows, lengths = warm_up.grid(context.settings, meta)
    try:
        return executor.warm_up(rows, lengths, context.settings.warm_up.repeats), ""
    except warm_up.NothingRan as nothing:
        return [], str(nothing)


def _tell(report: SafetyReport, fine: bool = True) -> None:
    """One line in the log: a warning where it is served otherwise than configured, or could not be judged.

    fine: nothing else speaks for a warning."""
    thorough = report.batches >= ENOUGH * report.planned
    fine = fine and report.verdict in (SAFE, OFF) and report.mode != UNBATCHED and thorough
    level = logging.INFO if fine else logging.WARNING
    log.log(level, "batch safety: %s", "; ".join(safety_text.lines(report)))

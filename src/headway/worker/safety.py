"""Whether a row's answer depends on the batch it is in: found by running made-up rows alone and together.

Each probe runs alone twice: a model that differs from itself is not deterministic, and batching is not to blame. Then
they run in batches of several sizes, lengths and orders, and every answer is compared with that alone. What follows is
the loosest way to serve that was found to be safe:

    nothing differs                         any rows together
    differs only among different lengths    rows of one length together
    differs otherwise                       each row alone
    not deterministic                       each row alone: nobody can tell what batching does
    could not be judged                     as configured, and it is said
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from time import perf_counter_ns

import msgspec
import numpy as np

from headway.core.units import SECOND, Duration
from headway.wire.safety import (
    BATCHED,
    EQUAL_LENGTHS,
    NOT_DETERMINISTIC,
    NOT_JUDGED,
    SAFE,
    UNBATCHED,
    UNSAFE,
    Difference,
    SafetyReport,
)
from headway.worker import probe_file, probes, safety_plan, warm_up
from headway.worker.executor import Array, PartArrays, PartError, PartOutput
from headway.worker.safety_compare import worst_difference
from headway.worker.safety_plan import Batch
from headway.worker.safety_subject import Subject, kept

BUDGET: Duration = 3 * SECOND
"""At load: no run begins after this much checking."""

SHARE = 0.25
"""Of the budget, for rows alone the first time, and again the second: what is left is for batches."""

PAIRS = 9
"""Batches of rows that bring optional inputs: the first planned are pairs of every kind."""

REASONS = {
    BATCHED: "in every batch that was tried the answers are those alone, within the tolerance",
    EQUAL_LENGTHS: "padding changes its answers: only rows of one length run together",
    UNBATCHED: "its answers depend on their company: each row runs alone",
    NOT_DETERMINISTIC: "it answers the same input differently from run to run, so that nobody can tell what batching "
    "does: each row runs alone",
}


class NotJudged(Exception):
    """Why nothing can be said."""


def check(subject: Subject, budget: Duration = BUDGET, clock: Callable[[], int] = perf_counter_ns) -> SafetyReport:
    """Raises LoadError for settings and probes that do not fit the model."""
    begun = clock()
    inspection = _Inspection(subject, begun + budget, clock)
    try:
        report = inspection.judge()
    except NotJudged as why:
        report = SafetyReport(NOT_JUDGED, BATCHED, f"could not be judged: {why}", notes=tuple(inspection.notes))
    seconds = round((clock() - begun) / SECOND, 3)
    return msgspec.structs.replace(report, seconds=seconds)


class _Inspection:
    """alone: probe -> its answer.  lengths: probe -> its length.  took: probe -> the shorter of its times alone."""

    def __init__(self, subject: Subject, ends: int, clock: Callable[[], int]) -> None:
        self._subject = subject
        self._ends = ends
        self._clock = clock
        self._share = int((ends - clock()) * SHARE)
        self.notes: list[str] = []
        self.probes: list[PartArrays] = []
        self.alone: dict[int, dict[str, Array]] = {}
        self.lengths: dict[int, int] = {}
        self.took: dict[int, Duration] = {}
        self._given = False

    def judge(self) -> SafetyReport:
        self._find_probes()
        restless = self._run_again()
        if restless is not None:
            return self._report(NOT_DETERMINISTIC, UNBATCHED, REASONS[NOT_DETERMINISTIC], restless, 0, 0)
        planned = self._plan()
        if not planned:
            return self._report(SAFE, BATCHED, "it never has company: a batch holds one row", None, 0, 0)
        equal, mixed, ran = self._run_batches(planned)
        restless = self._changed_meanwhile()
        if restless is not None:
            return self._report(NOT_DETERMINISTIC, UNBATCHED, REASONS[NOT_DETERMINISTIC], restless, ran, len(planned))
        mode = _mode(equal, mixed)
        worst = max((d for d in (equal, mixed) if d is not None), key=lambda difference: difference.size)
        return self._report(SAFE if mode == BATCHED else UNSAFE, mode, REASONS[mode], worst, ran, len(planned))

    def _report(
        self, verdict: str, mode: str, reason: str, worst: Difference | None, ran: int, planned: int
    ) -> SafetyReport:
        return SafetyReport(verdict, mode, reason, len(self.alone), ran, planned, worst=worst, notes=tuple(self.notes))

    def _in_time(self, until: int | None = None, longest: Duration = 0) -> bool:
        """Whether a run may begin, at `until` the latest. longest: that it may take, as far as one can tell."""
        now = self._clock()
        return now < (self._ends if until is None else min(until, self._ends)) and now + longest <= self._ends

    # -- alone ---------------------------------------------------------------------------------

    def _find_probes(self) -> None:
        """Those that the model answers alone. Raises NotJudged where it answers none."""
        subject = self._subject
        self.probes = probe_file.read(subject.name, subject.context.path, subject.meta.inputs)
        if self.probes:
            self._given = True
            self.notes.append(f"inputs from {probe_file.NAME}")
            if not self._run_alone():
                raise self._nothing(f"every input of {probe_file.NAME} failed")
            return
        unknown = warm_up.unknown_sizes(subject.meta.inputs)
        if unknown:
            raise NotJudged(f"input {unknown} has sizes that are neither padded nor fixed; give {probe_file.NAME}")
        if not subject.takes_made_up:
            raise NotJudged(
                f"the model does not say that it takes made-up inputs (warm_up = True), and there is no "
                f"{probe_file.NAME}"
            )
        for largest in probes.TAMENESS:
            self.probes = probes.made_up(subject.name, subject.meta.inputs, subject.settings, largest)
            if self._run_alone():
                self._tell_of_optional()
                return
        raise self._nothing("every made-up input failed", f"; give {probe_file.NAME}")

    def _nothing(self, what: str, advice: str = "") -> NotJudged:
        if not self._refusal:
            return NotJudged("there was no time to run one row")
        return NotJudged(f"nothing could be checked: {what}, first error {self._refusal}{advice}")

    def _tell_of_optional(self) -> None:
        """Which were there, and which never were."""
        present = {name for number in self.alone for name in self.probes[number].inputs}
        optional = [tensor.name for tensor in self._subject.meta.inputs if tensor.optional]
        tried = [name for name in optional if name in present]
        left_out = [name for name in optional if name not in present]
        self.notes += [f"with and without optional inputs: {', '.join(tried)}"] if tried else []
        self.notes += [f"optional inputs were left out: {', '.join(left_out)}"] if left_out else []

    def _run_alone(self) -> bool:
        self.alone, self._refusal = {}, ""
        until = self._clock() + self._share
        for number, probe in enumerate(self.probes):
            if not self._in_time(until):
                break
            begun = self._clock()
            (answer,) = self._subject.run([probe])
            self.took[number] = self._clock() - begun
            if isinstance(answer, PartError):
                self._refusal = self._refusal or answer.detail[:300]
            else:
                self.alone[number] = kept(answer)
        self.lengths = {number: self.probes[number].length for number in self.alone}
        return bool(self.alone)

    def _run_again(self) -> Difference | None:
        """A second time, after all the others. The worst difference where it is too large."""
        again = 0
        until = self._clock() + self._share
        for number in list(self.alone):
            if not self._in_time(until):
                del self.alone[number]  # what was not seen to be itself is nothing to compare with
                continue
            again += 1
            difference = self._second(number)
            if difference.too_large:
                return difference
        if not again:
            raise NotJudged("one row alone takes longer than there is time for")
        refused = len(self.probes) - again
        if refused:
            why = f"the model refuses them (first error {self._refusal}), or " if self._refusal else ""
            self.notes.append(f"{refused} of {len(self.probes)} inputs were not used: {why}time was up")
        return None

    def _second(self, number: int) -> Difference:
        subject = self._subject
        begun = self._clock()
        (answer,) = subject.run([self.probes[number]])
        self.took[number] = min(self.took[number], self._clock() - begun)
        return worst_difference(self.alone[number], answer, subject.meta.outputs, subject.allowed, "alone, both times")

    def _changed_meanwhile(self) -> Difference | None:
        """Whether batches have left something behind in the model."""
        difference = self._second(next(iter(self.alone)))
        return difference if difference.too_large else None

    # -- together ------------------------------------------------------------------------------

    def _plan(self) -> list[Batch]:
        subject = self._subject
        inputs = {tensor.name: tensor for tensor in subject.meta.inputs}
        usable = list(self.alone)
        found = safety_plan.groups([self.probes[n] for n in usable], inputs, subject.meta.per_row_parameters)
        plans = [
            safety_plan.plan([usable[at] for at in group], self.lengths, subject.max_rows, subject.max_tokens)
            for group in found
        ]
        if not self._given:
            plans[1:] = [batches[:PAIRS] for batches in plans[1:]]  # with optional inputs: the kernels are the same
        return [batch for turn in zip_longest(*plans) for batch in turn if batch is not None]

    def _run_batches(self, planned: Sequence[Batch]) -> tuple[Difference | None, Difference | None, int]:
        """The worst among equal lengths and among different ones, and how many batches ran."""
        worst: dict[bool, Difference] = {}
        ran = 0
        for batch in planned:
            if not self._in_time(longest=self._estimate(batch)):
                continue  # a smaller one may still do
            ran += 1
            mixed = len({self.lengths[number] for number in batch.members}) > 1
            found = self._worst_in(batch)
            if mixed not in worst or found.size > worst[mixed].size:
                worst[mixed] = found
        if not ran:
            raise NotJudged("there was time for rows alone and for no batch")
        if ran < len(planned):
            self.notes.append(f"{len(planned) - ran} of {len(planned)} batches were not run: time was up")
        return worst.get(False), worst.get(True), ran

    def _estimate(self, batch: Batch) -> Duration:
        """As if each of its rows ran alone, at the greatest length: batching costs no more than that."""
        longest = max(batch.members, key=lambda number: self.lengths[number])
        return len(batch.members) * self.took[longest]

    def _worst_in(self, batch: Batch) -> Difference:
        subject = self._subject
        parts = [self.probes[number] for number in batch.members]
        answers = _apart(subject.run([_joined(parts)])[0], len(parts)) if batch.joined else subject.run(parts)
        return max(
            (
                worst_difference(
                    self.alone[number],
                    answer,
                    subject.meta.outputs,
                    subject.allowed,
                    safety_plan.in_words(batch, at, self.lengths, subject.padded),
                )
                for at, (number, answer) in enumerate(zip(batch.members, answers, strict=True))
            ),
            key=lambda difference: difference.size,
        )


def _mode(equal: Difference | None, mixed: Difference | None) -> str:
    """equal, mixed: the worst among batches of these kinds; None = none ran."""
    if equal is not None and equal.too_large:
        return UNBATCHED
    if mixed is None or not mixed.too_large:
        return BATCHED
    return UNBATCHED if equal is None else EQUAL_LENGTHS


def _joined(parts: Sequence[PartArrays]) -> PartArrays:
    first = parts[0]
    inputs = {name: np.concatenate([part.inputs[name] for part in parts]) for name in first.inputs}
    return PartArrays(len(parts), first.length, inputs, first.parameters)


def _apart(answer: PartOutput, rows: int) -> list[PartOutput]:
    if isinstance(answer, PartError):
        return [answer] * rows
    return [{name: array[row : row + 1] for name, array in answer.items()} for row in range(rows)]

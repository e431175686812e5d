"""Tries whether an answer has the same bits in any company and at any place of a batch of fixed size.

For each class of lengths two rows run alone (beside copies of themselves), then in full batches in which each of them
stands at every place with the other around it, then in one that is filled up. What is compared are bits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from time import perf_counter_ns

from headway.core.units import MILLISECOND, SECOND, Duration
from headway.wire.safety import Difference, FixedCost, InvariantReport, class_of
from headway.worker import probe_file, probes, warm_up
from headway.worker.errors import LoadError
from headway.worker.executor import Array, PartArrays, PartError, PartOutput
from headway.worker.invariant import InvariantExecutor
from headway.worker.safety_compare import same_bits
from headway.worker.safety_subject import Subject, kept

log = logging.getLogger("headway.worker")

BUDGET: Duration = 20 * SECOND
"""At load: no run at a fixed size begins after so much proving."""

SHORTEST_CLASS = 16


def length_classes(subject: Subject) -> tuple[int, ...]:
    """What rows are padded to: the lengths that are warmed up, else powers of two; the last is the longest there is.

    () where nothing is padded. Raises LoadError where nothing says how long a request may be.
    """
    if not subject.padded:
        return ()
    settings = subject.settings
    longest = settings.max_length
    if not longest:
        raise LoadError(
            f"model {subject.name}: batch_invariant needs max_length: its rows are padded to fixed lengths, "
            "and the longest of them must be one that the model takes"
        )
    chosen = settings.warm_up.lengths or tuple(SHORTEST_CLASS << power for power in range(longest.bit_length()))
    return (*sorted({length for length in chosen if length < longest}), longest)


def prove(
    subject: Subject,
    executor: InvariantExecutor,
    budget: Duration = BUDGET,
    clock: Callable[[], int] = perf_counter_ns,
) -> InvariantReport:
    """subject: the executor that is wrapped.  Raises LoadError where rows alone are not bit-equal from run to run:
    the promise could not be kept at all."""
    ends = clock() + budget
    found = _probes(subject, executor.classes)
    proven: list[int] = []
    costs: list[FixedCost] = []
    runs = 0
    for size, pair in found.items():
        _check_alone(subject, pair)
        trial = _Trial(subject, executor, size, pair, lambda: clock() < ends)
        try:
            broken = trial.run()
        except _OutOfTime:
            break
        runs += trial.runs
        costs.append(trial.cost())
        if broken is not None:
            return InvariantReport((), executor.classes or tuple(found), runs, tuple(costs), broken)
        proven.append(size)
    unproven = [size for size in executor.classes or tuple(found) if size not in proven]
    return InvariantReport(tuple(proven), tuple(unproven), runs, tuple(costs))


def check_alone(subject: Subject) -> None:
    """For who runs each row alone from the beginning. Raises LoadError where that is not bit-equal from run to run."""
    for pair in _probes(subject, ()).values():
        _check_alone(subject, pair)


def _probes(subject: Subject, classes: tuple[int, ...]) -> dict[int, list[PartArrays]]:
    """Two rows of each class that the model answers; a class without any is not there."""
    given = probe_file.read(subject.name, subject.context.path, subject.meta.inputs)
    if given:
        return _sorted_out(subject, given, classes)
    if warm_up.unknown_sizes(subject.meta.inputs) or not subject.takes_made_up:
        return {}
    sizes = classes or probes.lengths(subject.meta.inputs, subject.settings)
    shorter = dict(zip(sizes, (0, *sizes), strict=False)) if classes else {}
    wanted = [length for size in sizes for length in (size, (size + shorter[size] + 1) // 2 if classes else size)]
    for largest in probes.TAMENESS:
        made = probes.of_lengths(wanted, subject.name, subject.meta.inputs, subject.settings, largest)
        if not isinstance(subject.run(made[:1])[0], PartError):
            return _sorted_out(subject, made, classes)
    return {}


def _sorted_out(subject: Subject, made: Sequence[PartArrays], classes: tuple[int, ...]) -> dict[int, list[PartArrays]]:
    found: dict[int, list[PartArrays]] = {}
    for probe in made:
        found.setdefault(class_of(probe.length, classes), []).append(probe)
    return {size: (found[size] * 2)[:2] for size in sorted(found)}


def _check_alone(subject: Subject, pair: Sequence[PartArrays]) -> None:
    for probe in pair:
        (answer,) = subject.run([probe])
        if isinstance(answer, PartError):
            continue  # refused by itself, and so in any company
        one = kept(answer)
        changed = same_bits(one, subject.run([probe])[0], subject.meta.outputs, "alone")
        if changed is not None:
            raise LoadError(
                f"model {subject.name}: batch_invariant cannot be kept: one row alone, run twice, differs in output "
                f"{changed.output!r}: {changed.one} and {changed.other}"
            )


class _OutOfTime(Exception):
    """Nothing can be said of this class."""


class _Trial:
    """One class of lengths. in_time: whether another run may begin."""

    def __init__(
        self,
        subject: Subject,
        executor: InvariantExecutor,
        size: int,
        pair: Sequence[PartArrays],
        in_time: Callable[[], bool],
    ) -> None:
        self._in_time = in_time
        self._subject = subject
        self._fixed = Subject(executor, subject.meta, subject.context, subject.takes_made_up)
        self._size = size
        self._pair = pair
        self._rows = executor.rows_at(size)
        self._fastest = 0
        self.runs = 0

    def run(self) -> Difference | None:
        """The first answer that has other bits than alone; None = none has."""
        alone: list[dict[str, Array]] = []
        for probe in self._pair:
            (answer,) = self._timed([probe])
            if isinstance(answer, PartError):
                return Difference("", (), "", "", 0, 0, f"{self._rows} rows of length {self._size}", answer.detail)
            alone.append(kept(answer))
        for order in self._orders():
            answers = self._timed([self._pair[which] for which in order])
            for at, (which, answer) in enumerate(zip(order, answers, strict=True)):
                company = f"{self._rows} rows of length {self._size}, {len(order)} of them asked for, at place {at + 1}"
                changed = same_bits(alone[which], answer, self._subject.meta.outputs, company)
                if changed is not None:
                    return changed
        return None

    def _orders(self) -> list[list[int]]:
        if self._rows == 1:
            return [[0], [1]]
        full = [list(islice(cycle(turn), self._rows)) for turn in ((0, 1), (1, 0))]
        return [*full, [0, 0, 1][: self._rows], [1, *[0] * (self._rows - 1)]]

    def _timed(self, parts: Sequence[PartArrays]) -> list[PartOutput]:
        if not self._in_time():
            raise _OutOfTime
        begun = perf_counter_ns()
        answers = self._fixed.run(parts)
        took = perf_counter_ns() - begun
        self._fastest = min(took, self._fastest or took)
        self.runs += 1
        return answers

    def cost(self) -> FixedCost:
        """Of the fixed size, and of its first row as it comes: the fastest runs of each."""
        alone = 0
        for _ in range(2):
            begun = perf_counter_ns()
            self._subject.run(self._pair[:1])
            took = perf_counter_ns() - begun
            alone = min(took, alone or took)
        return FixedCost(self._size, self._rows, round(self._fastest / MILLISECOND, 3), round(alone / MILLISECOND, 3))

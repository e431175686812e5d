"""Fixed sizes around an executor that a test has written, and the proof with little time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headway.config.settings import Batching, ModelSettings
from headway.core.ids import Measurement
from headway.core.units import SECOND
from headway.wire.messages import InputMeta, ModelMeta
from headway.worker import invariant_proof
from headway.worker.executor import Durations, LoadContext, PartArrays, PartError, PartOutput
from headway.worker.invariant import InvariantExecutor
from headway.worker.safety_subject import Subject

META = ModelMeta(
    "fake", (InputMeta("ids", "INT64", (-1, -1), pad_axis=1),), (InputMeta("y", "FP64", (-1, -1), pad_axis=1),)
)


class Seen:
    """Doubles what it gets, and remembers the sizes: (rows, their lengths)."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, set[int]]] = []

    def load(self, context: LoadContext) -> ModelMeta:
        return META

    def warm_up(self, rows: Sequence[int], lengths: Sequence[int], repeats: int) -> list[Measurement]:
        return [Measurement(rows[0], lengths[0], 7)]

    def execute(self, parts: Sequence[PartArrays], durations: Durations) -> list[PartOutput]:
        durations.execute = 10
        self.sizes.append((len(parts), {part.inputs["ids"].shape[1] for part in parts}))
        return [PartError("no nines") if 9 in part.inputs["ids"] else {"y": part.inputs["ids"] * 2.0} for part in parts]

    def unload(self) -> None: ...


def row(*ids: int) -> PartArrays:
    return PartArrays(1, len(ids), {"ids": np.array([ids])}, {})


def around(max_rows: int = 4, max_tokens: int = 0, classes: tuple[int, ...] = (4, 8)) -> tuple[InvariantExecutor, Seen]:
    seen = Seen()
    return InvariantExecutor(seen, META, max_rows, max_tokens, classes), seen


def answers(executor: InvariantExecutor, *parts: PartArrays) -> list[object]:
    found = executor.execute(parts, Durations())
    return [answer.detail if isinstance(answer, PartError) else answer["y"].tolist() for answer in found]


def test_whatever_comes_the_executor_inside_sees_one_size_and_each_gets_its_own():
    executor, seen = around()
    assert answers(executor, row(1, 2), row(3)) == [[[2, 4]], [[6]]]
    assert answers(executor, row(1, 2, 3, 4)) == [[[2, 4, 6, 8]]]
    assert seen.sizes == [(4, {4}), (4, {4})]


def test_more_rows_than_fit_are_run_in_several_batches_and_their_times_added_up():
    executor, seen = around()
    spent = Durations()
    part = PartArrays(6, 3, {"ids": np.arange(18).reshape(6, 3) % 9}, {})
    (answer,) = executor.execute([part], spent)
    assert not isinstance(answer, PartError)
    assert answer["y"].tolist() == (part.inputs["ids"] * 2.0).tolist()
    assert (seen.sizes, spent.execute) == ([(4, {4}), (4, {4})], 20)


def test_rows_of_several_classes_never_meet():
    executor, seen = around()
    assert answers(executor, row(1), row(1, 2, 3, 4, 5), row(2)) == [[[2]], [[2, 4, 6, 8, 10]], [[4]]]
    assert seen.sizes == [(4, {4}), (4, {8})]


def test_a_cap_in_tokens_makes_longer_classes_smaller():
    executor, seen = around(max_tokens=16)
    answers(executor, row(1), row(1, 2, 3, 4, 5))
    assert seen.sizes == [(4, {4}), (2, {8})]


def test_one_rows_own_failure_is_its_own_and_its_parts():
    executor, _ = around()
    assert answers(executor, row(1), row(9)) == [[[2]], "no nines"]
    assert answers(executor, PartArrays(2, 1, {"ids": np.array([[1], [9]])}, {})) == ["no nines"]


def test_rows_of_which_nothing_is_proven_or_beyond_all_classes_run_one_by_one_as_they_come():
    executor, seen = around()
    executor.singly = frozenset({8})
    assert answers(executor, row(*range(5)), row(*range(6)), row(1), row(*[1] * 9))[2] == [[2]]
    assert seen.sizes == [(1, {5}), (1, {6}), (4, {4}), (1, {9})]


def test_where_nothing_is_padded_each_length_is_its_own_class():
    executor, seen = around(classes=())
    answers(executor, row(1, 2), row(1), row(2))
    assert seen.sizes == [(4, {2}), (4, {1})]


def test_warming_up_runs_what_will_be_run_and_tells_the_same_time_for_one_row():
    executor, _ = around(max_tokens=16)
    executor.singly = frozenset()
    assert set(executor.warm_up([1, 2, 4], [99], 1)) == {
        Measurement(4, 4, 7),
        Measurement(1, 4, 7),
        Measurement(2, 8, 7),
        Measurement(1, 8, 7),
    }
    executor.singly = frozenset({8})
    assert {one.length for one in executor.warm_up([1], [99], 1)} == {4}


def test_no_run_of_the_proof_begins_when_time_is_up_and_those_lengths_are_unproven():
    executor, seen = around()
    settings = ModelSettings(batching=Batching(max_batch_size=4), max_length=8)
    subject = Subject(seen, META, LoadContext("m", 1, "/x", "cpu", 1, settings), takes_made_up=True)

    def clock() -> int:
        return len(seen.sizes) * SECOND

    report = invariant_proof.prove(subject, executor, 1000 * SECOND, clock)
    assert (report.proven, report.unproven, report.broken) == ((4, 8), (), None)
    runs = len(seen.sizes)
    seen.sizes.clear()
    short = invariant_proof.prove(subject, executor, (runs - 4) * SECOND, clock)
    assert (short.proven, short.unproven) == ((4,), (8,))
    assert len(seen.sizes) <= runs - 4

"""The check of batch safety against a model that a test writes: what is concluded, and what in how much time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.config.settings import Batching, ModelSettings
from headway.core.ids import Measurement
from headway.core.units import SECOND
from headway.wire import safety_text
from headway.wire.messages import InputMeta, ModelMeta
from headway.wire.safety import BATCHED, SAFE, SafetyReport
from headway.worker.executor import Array, Durations, LoadContext, PartArrays, PartError, PartOutput
from headway.worker.safety import check
from headway.worker.safety_load import _tell
from headway.worker.safety_subject import Subject

Answer = Callable[[Sequence[PartArrays]], list[PartOutput]]
Cost = Callable[[Sequence[PartArrays]], float]


class Written:
    """A BatchExecutor whose answers a test has written. cost: seconds of the test's clock that a run takes."""

    def __init__(self, answer: Answer, cost: Cost) -> None:
        self.answer = answer
        self.runs: list[int] = []
        self.lengths: list[int] = []
        self.cost = cost
        self.spent = 0.0

    def execute(self, parts: Sequence[PartArrays], durations: Durations) -> list[PartOutput]:
        self.runs.append(len(parts))
        self.lengths.append(max(part.length for part in parts))
        self.spent += self.cost(parts)
        return self.answer(parts)

    def load(self, context: LoadContext) -> ModelMeta:
        raise AssertionError("what is checked has been loaded")

    def warm_up(self, rows: Sequence[int], lengths: Sequence[int], repeats: int) -> list[Measurement]:
        return []

    def unload(self) -> None: ...


def doubled(parts: Sequence[PartArrays]) -> list[PartOutput]:
    return [{"y": part.inputs["ids"] * 2.0} for part in parts]


def checked(
    answer: Answer,
    seconds: float = 1000,
    settings: ModelSettings | None = None,
    inputs: Any = (),
    folder: str = "/x",
    cost: Cost = lambda parts: 1,
) -> tuple[SafetyReport, Written]:
    """Each run takes a second unless `cost` says otherwise."""
    executor = Written(answer, cost)
    inputs = inputs or (InputMeta("ids", "INT64", (-1, -1), pad_axis=1),)
    meta = ModelMeta("fake", inputs, (InputMeta("y", "FP64", (-1, -1), pad_axis=1),))
    context = LoadContext("m", 1, folder, "cpu", 1, settings or ModelSettings())
    subject = Subject(executor, meta, context, takes_made_up=True)
    return check(subject, int(seconds * SECOND), lambda: int(executor.spent * SECOND)), executor


def test_every_probe_runs_alone_twice_before_anything_runs_together_and_one_again_at_the_end():
    report, executor = checked(doubled)
    assert (report.verdict, report.mode, report.probes) == ("safe", "batched", 12)
    assert executor.runs[:24] == [1] * 24
    assert min(executor.runs[24 : 24 + 3]) > 1
    assert executor.runs[-1] == 1
    assert report.batches == report.planned == len(executor.runs) - 24 - 1 > 20
    assert report.seconds == len(executor.runs)


def test_a_model_that_differs_from_itself_is_said_to_and_batching_is_not_blamed():
    random = np.random.default_rng(1)

    def noisy(parts: Sequence[PartArrays]) -> list[PartOutput]:
        return [{"y": part.inputs["ids"] + random.normal()} for part in parts]

    report, executor = checked(noisy)
    assert (report.verdict, report.mode, report.batches) == ("not_deterministic", "unbatched", 0)
    assert report.worst is not None and report.worst.batch == "alone, both times"
    assert set(executor.runs) == {1}


def test_no_run_begins_when_time_is_up_and_what_was_not_covered_is_said():
    report, executor = checked(doubled, seconds=30)
    assert executor.runs[:16] == [1] * 16, "a quarter of the time each for rows alone and again"
    assert len(executor.runs) <= 30 + 1, "and the last, which tells whether batches have changed the model"
    assert report.verdict == "safe" and 0 < report.batches < report.planned
    assert any("batches were not run: time was up" in note for note in report.notes)
    assert any("4 of 12 inputs were not used: time was up" in note for note in report.notes)


def test_without_time_for_a_batch_nothing_is_judged():
    for seconds in (1, 3):
        report, _ = checked(doubled, seconds=seconds)
        assert (report.verdict, report.mode) == ("not_judged", "batched"), seconds


def test_long_rows_do_not_take_the_time_of_short_ones():
    """One that takes a second for 16 tokens: its probes alone would take six times as long as there is."""
    report, executor = checked(doubled, seconds=6, cost=lambda parts: sum(p.length for p in parts) / 16)
    first = executor.runs.index(2)
    assert set(executor.lengths[:first]) == {3, 7, 16}
    assert 3 in executor.lengths[first:] and 16 in executor.lengths[first:]
    assert executor.spent <= 6 + 1, "and what would take longer than there is left is not begun"
    assert report.verdict == "safe" and report.batches >= 3


def test_a_batch_that_fits_what_is_left_is_run_after_one_that_does_not():
    _, executor = checked(doubled, seconds=10, cost=lambda parts: 0.2 * len(parts))
    assert max(executor.runs) < 32
    assert executor.spent > 9, "the time is used"


def test_a_model_that_mixes_rows_up_only_where_an_optional_input_is_given_is_found_out():
    def centred(parts: Sequence[PartArrays]) -> list[PartOutput]:
        company = len(parts) - 1 if "extra" in parts[0].inputs else 0
        return [{"y": part.inputs["ids"] * 2.0 + company} for part in parts]

    inputs = (InputMeta("ids", "INT64", (-1, 3)), InputMeta("extra", "FP32", (-1, 3), optional=True))
    report, _ = checked(centred, inputs=inputs)
    assert (report.verdict, report.mode) == ("unsafe", "unbatched")
    assert "with and without optional inputs: extra" in report.notes
    report, _ = checked(centred, inputs=inputs, seconds=40)
    assert report.verdict == "unsafe", "also where there is no time for all"


def test_a_model_that_takes_only_small_integers_is_tried_with_ones_and_then_with_zeros():
    def picky(parts: Sequence[PartArrays]) -> list[PartOutput]:
        return [
            PartError("too large") if part.inputs["ids"].max() > 1 else one
            for part, one in zip(parts, doubled(parts), strict=True)
        ]

    assert checked(picky)[0].verdict == "safe"

    def never(parts: Sequence[PartArrays]) -> list[PartOutput]:
        return [PartError("I never answer", "invalid_input") for _ in parts]

    report, _ = checked(never)
    assert report.verdict == "not_judged"
    assert "nothing could be checked: every made-up input failed, first error I never answer;" in report.reason


def test_probes_that_the_model_refuses_alone_are_left_out_and_counted():
    def short(parts: Sequence[PartArrays]) -> list[PartOutput]:
        return [
            PartError("too long") if part.length > 16 else one for part, one in zip(parts, doubled(parts), strict=True)
        ]

    report, _ = checked(short)
    assert (report.verdict, report.probes) == ("safe", 9)
    assert any("3 of 12 inputs were not used" in note and "first error too long" in note for note in report.notes)


def test_a_batch_that_fails_though_each_row_alone_is_answered_is_a_difference():
    def alone_only(parts: Sequence[PartArrays]) -> list[PartOutput]:
        if len({part.length for part in parts}) > 1:
            raise ValueError("ragged")
        return doubled(parts)

    report, _ = checked(alone_only)
    assert (report.verdict, report.mode) == ("unsafe", "equal_lengths")
    assert report.worst is not None and report.worst.detail == "fails: ValueError: ragged"


def test_a_model_that_writes_into_its_inputs_is_stopped_as_it_is_when_it_serves():
    def writes(parts: Sequence[PartArrays]) -> list[PartOutput]:
        for part in parts:
            part.inputs["ids"] += 1
        return doubled(parts)

    report, _ = checked(writes)
    assert report.verdict == "not_judged"
    assert "read-only" in report.reason


def test_a_model_that_hands_out_the_same_memory_each_time_is_compared_with_what_it_said():
    memory: dict[tuple[int, int], Array] = {}

    def reuses(parts: Sequence[PartArrays]) -> list[PartOutput]:
        if len(parts) > 1:
            return doubled(parts)
        y = memory.setdefault(parts[0].inputs["ids"].shape, np.zeros(parts[0].inputs["ids"].shape))
        y[:] = parts[0].inputs["ids"] * 2.0
        return [{"y": y}]

    assert checked(reuses)[0].verdict == "safe"


def test_a_model_that_never_has_company_needs_no_batches():
    report, executor = checked(doubled, settings=ModelSettings(batching=Batching(max_batch_size=1)))
    assert (report.verdict, report.mode, report.planned) == ("safe", "batched", 0)
    assert set(executor.runs) == {1}


def test_optional_inputs_that_cannot_be_made_up_are_left_out_and_it_is_said():
    inputs = (InputMeta("ids", "INT64", (-1, 3)), InputMeta("extra", "FP32", (-1, -1), optional=True))
    report, _ = checked(doubled, inputs=inputs)
    assert "optional inputs were left out: extra" in report.notes


def test_the_report_reads_like_what_was_done(tmp_path: Path):
    lines = list(safety_text.lines(checked(doubled)[0]))
    assert lines[0] == "safe, served in batches as configured"
    assert lines[2] == "largest difference: none, every answer is the very same"
    assert lines[3].startswith("tried: 12 inputs alone, twice, and ")
    unsafe = list(
        safety_text.lines(checked(lambda parts: [{"y": p.inputs["ids"] * 1.0 + len(parts)} for p in parts])[0])
    )
    assert unsafe[0] == "not safe, served row by row"
    assert unsafe[2].startswith("worst difference: output 'y' at [")
    assert " alone, " in unsafe[2] and " rows of lengths " in unsafe[2] and unsafe[2].endswith("is allowed")


@pytest.mark.parametrize(("batches", "level"), [(27, "INFO"), (14, "INFO"), (13, "WARNING")])
def test_a_verdict_on_less_than_half_of_what_was_planned_is_said_louder(
    caplog: pytest.LogCaptureFixture, batches: int, level: str
) -> None:
    with caplog.at_level("INFO", "headway.worker"):
        _tell(SafetyReport(SAFE, BATCHED, batches=batches, planned=27))
    assert [record.levelname for record in caplog.records] == [level]

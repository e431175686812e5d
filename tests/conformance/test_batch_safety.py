"""Each way in which batching changes a model's answers is found in a real worker, and so is that it does not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from headway.config.settings import Batching, ModelSettings, WarmUp
from headway.core.units import SECOND
from headway.registry.minilm import prepare
from headway.wire import safety_text
from headway.wire.messages import LoadFailed
from headway.worker.errors import LoadError
from headway.worker.executor import BatchExecutor, Durations, PartArrays, PartOutput
from headway.worker.executors import create
from headway.worker.invariant import InvariantExecutor
from headway.worker.safety import check
from headway.worker.safety_load import settle
from headway.worker.safety_subject import Subject
from tests import models
from tests.conformance.executors import context, python_model
from tests.safety_models import MODELS, PADDED_MEAN, put, settings_of
from tests.worker_process import ready, worker_process

ONNX: dict[str, tuple[Callable[[Path], Path], str, str, str]] = {
    "centred_over_rows": (models.centred_over_rows, "", "unsafe", "unbatched"),
    "padded_mean": (models.padded_mean, models.PADDED_MEAN_TOML, "unsafe", "equal_lengths"),
    "masked_mean": (models.masked_mean, models.MASKED_MEAN_TOML, "safe", "batched"),
    "tiny_encoder": (models.tiny_encoder, models.TINY_ENCODER_TOML, "safe", "batched"),
    "fixed_batch": (models.fixed_batch, "", "safe", "batched"),
    "affine_fp16": (models.affine_fp16, "", "safe", "batched"),
    "argmax": (models.argmax, "", "safe", "batched"),
    "lookup": (models.lookup, models.LOOKUP_TOML, "safe", "batched"),
    "echo_text": (models.echo_text, "", "safe", "batched"),
}


def put_onnx(root: Path, name: str, settings: str = "") -> Path:
    write, toml, _, _ = ONNX[name]
    write(root / name / "1")
    (root / name / "model.toml").write_text(settings + toml)
    return root / name / "1"


@pytest.mark.e2e
@pytest.mark.parametrize("name", MODELS)
def test_a_worker_finds_what_batching_does_to_a_python_model(tmp_path: Path, name: str) -> None:
    folder = put(tmp_path, name)
    with worker_process(tmp_path) as worker:
        report = ready(worker, folder, "python", settings_of(folder)).safety
    assert (report.verdict, report.mode) == MODELS[name][2:]
    assert report.probes > 0
    assert report.worst is not None
    assert report.worst.too_large == (report.verdict != "safe")


@pytest.mark.parametrize("name", ONNX)
def test_what_batching_does_to_an_onnx_model_is_found(tmp_path: Path, name: str) -> None:
    folder = put_onnx(tmp_path, name)
    loaded = context(folder, settings_of(folder))
    executor: BatchExecutor = create("onnx")  # type: ignore[assignment]
    _, _, report = settle(executor, executor.load(loaded), loaded)
    assert (report.verdict, report.mode) == ONNX[name][2:], report
    assert report.batches == report.planned >= 5


def test_the_warning_shows_the_worst_difference_and_the_company_it_is_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = put(tmp_path, "padded_mean")
    loaded = context(folder, settings_of(folder))
    executor: BatchExecutor = create("python")  # type: ignore[assignment]
    with caplog.at_level(logging.INFO):
        settle(executor, executor.load(loaded), loaded)
    (said,) = [record for record in caplog.records if "batch safety" in record.getMessage()]
    assert said.levelno == logging.WARNING
    for words in (
        "served in batches of equal length",
        "output 'vector' at [",
        " alone, ",
        "rows of lengths",
        "allowed",
    ):
        assert words in said.getMessage()


ALWAYS_FAILS = """
class Model:
    inputs = {"x": ("FP32", [-1, 6])}
    outputs = {"y": ("FP32", [-1, 6])}
    warm_up = True

    def execute(self, requests):
        %s
"""


@pytest.mark.parametrize("how", ["raise ValueError('not today')", "return [ValueError('not today')] * len(requests)"])
@pytest.mark.parametrize("batch_safety", ["check", "off"])
def test_a_model_whose_every_made_up_input_fails_says_so_before_it_is_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str, batch_safety: str
) -> None:
    folder = python_model(tmp_path / "m" / "1", ALWAYS_FAILS % how)
    loaded = context(folder, ModelSettings(batch_safety=batch_safety))
    executor: BatchExecutor = create("python")  # type: ignore[assignment]
    _, measured, report = settle(executor, executor.load(loaded), loaded)
    assert (measured, report.mode) == ([], "batched"), "served as configured, as what could not be judged is"
    (said,) = [record for record in caplog.records if "batch safety" in record.getMessage()]
    assert said.levelno == logging.WARNING
    shown = "\n".join(safety_text.lines(report))
    for text in (said.getMessage(), shown):
        assert "nothing could be warmed up: every made-up input failed, first error" in text
        assert ("nothing could be checked: every made-up input failed, first error" in text) == (batch_safety != "off")
        assert "ValueError: not today" in text


def report_of(folder: Path, kind: str, **changed: object) -> object:
    loaded = context(folder, msgspec.structs.replace(settings_of(folder), **changed))
    executor: BatchExecutor = create(kind)  # type: ignore[assignment]
    return settle(executor, executor.load(loaded), loaded)[2]


def test_an_operator_may_have_it_said_only_or_not_looked_at(tmp_path: Path) -> None:
    folder = put(tmp_path, "padded_mean")
    said = report_of(folder, "python", batch_safety="report")
    assert (said.verdict, said.mode, "yet it is served" in said.reason) == ("unsafe", "batched", True)
    off = report_of(folder, "python", batch_safety="off")
    assert (off.verdict, off.mode, off.probes) == ("off", "batched", 0)


def test_a_model_that_does_not_take_made_up_inputs_is_not_judged_unless_some_are_given(tmp_path: Path) -> None:
    code = PADDED_MEAN.replace("warm_up = True", "")
    folder = python_model(tmp_path / "m" / "1", code)
    (tmp_path / "m" / "model.toml").write_text("[inputs.ids]\npad_axis = 1\n")
    unknown = report_of(folder, "python")
    assert (unknown.verdict, unknown.mode) == ("not_judged", "batched")
    assert "probes.json" in unknown.reason
    requests = [
        {"inputs": [{"name": "ids", "datatype": "INT64", "shape": [2, size], "data": list(range(2 * size))}]}
        for size in (3, 9)
    ]
    (folder / "probes.json").write_bytes(msgspec.json.encode(requests))
    judged = report_of(folder, "python")
    assert (judged.verdict, judged.mode, judged.probes) == ("unsafe", "equal_lengths", 4)


def test_sizes_that_nobody_declares_cannot_be_made_up(tmp_path: Path) -> None:
    folder = python_model(
        tmp_path / "m" / "1",
        'class Model:\n    inputs = {"x": ("FP32", [-1, -1])}\n    outputs = {"y": ("FP32", [-1])}\n'
        "    warm_up = True\n    def execute(self, requests): ...\n",
    )
    (tmp_path / "m" / "model.toml").write_text("")
    report = report_of(folder, "python")
    assert (report.verdict, report.mode) == ("not_judged", "batched")
    assert "x [-1, -1]" in report.reason


def test_probes_that_do_not_fit_the_model_keep_it_from_loading(tmp_path: Path) -> None:
    folder = put(tmp_path, "correct_rows")
    (folder / "probes.json").write_text(
        '[{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 5], "data": []}]}]'
    )
    with worker_process(tmp_path) as worker:
        failed = worker.load(folder, "python", settings_of(folder))
    assert isinstance(failed, LoadFailed)
    assert "probes.json[0]: input 'x': the model takes [-1, 6], got shape [1, 5]" in failed.detail


def test_a_tolerance_of_its_own_decides_for_an_output(tmp_path: Path) -> None:
    folder = put(tmp_path, "depends_on_batch_size", "[tolerances.y]\nabsolute = 0.7\n")
    assert report_of(folder, "python").verdict == "safe"
    folder = put(tmp_path / "typo", "correct_rows", "[tolerances.z]\nabsolute = 1\n")
    with pytest.raises(Exception, match=r"tolerances.z: the model has no output of that name, it has y"):
        report_of(folder, "python")


# -- invariant mode ------------------------------------------------------------------------------------


def fixed(folder: Path, kind: str = "onnx", **changed: object) -> tuple[BatchExecutor, object]:
    settings = msgspec.structs.replace(settings_of(folder), batch_invariant=True, **changed)
    loaded = context(folder, settings)
    executor: BatchExecutor = create(kind)  # type: ignore[assignment]
    served, _, report = settle(executor, executor.load(loaded), loaded)
    return served, report


def test_the_scheduler_is_told_that_one_row_takes_what_a_full_batch_takes(tmp_path: Path) -> None:
    folder = put_onnx(tmp_path, "tiny_encoder")
    loaded = context(folder, msgspec.structs.replace(settings_of(folder), batch_invariant=True))
    executor: BatchExecutor = create("onnx")  # type: ignore[assignment]
    _, measured, _ = settle(executor, executor.load(loaded), loaded)
    full = sorted((one.length, one.duration) for one in measured if one.rows == 32)
    assert {length for length, _ in full} == {16, 32, 64}
    assert sorted((one.length, one.duration) for one in measured if one.rows == 1) == full
    assert {one.rows for one in measured} == {1, 32}


def encoder_part(random: np.random.Generator, length: int) -> PartArrays:
    ids = random.integers(0, 50, (1, length))
    return PartArrays(1, length, {"ids": ids, "mask": np.ones_like(ids)}, {})


def test_an_answer_has_the_same_bits_in_a_thousand_random_batchings(tmp_path: Path) -> None:
    served, report = fixed(put_onnx(tmp_path, "tiny_encoder"), batching=Batching(max_batch_size=8))
    assert isinstance(served, InvariantExecutor)
    assert (report.length_classes, report.invariant.proven, report.invariant.unproven) == (
        (16, 32, 64),
        (16, 32, 64),
        (),
    )
    assert [cost.rows for cost in report.invariant.costs] == [8, 8, 8]
    random = np.random.default_rng(11)
    texts = [encoder_part(random, int(length)) for length in random.integers(1, 65, 60)]
    alone = [served.execute([text], Durations())[0]["embedding"].tobytes() for text in texts]
    for _ in range(1000):
        chosen = random.integers(0, len(texts), int(random.integers(1, 12)))
        answers = served.execute([texts[at] for at in chosen], Durations())
        assert [answer["embedding"].tobytes() for answer in answers] == [alone[at] for at in chosen]


def test_without_fixed_sizes_the_bits_do_depend_on_company(tmp_path: Path) -> None:
    """What the mode is for: if this fails, the test above proves nothing."""
    folder = put_onnx(tmp_path, "tiny_encoder")
    loaded = context(folder, settings_of(folder))
    plain: BatchExecutor = create("onnx")  # type: ignore[assignment]
    plain.load(loaded)
    random = np.random.default_rng(11)
    texts = [encoder_part(random, int(length)) for length in random.integers(1, 65, 60)]
    alone = [plain.execute([text], Durations())[0]["embedding"].tobytes() for text in texts]
    together = [answer["embedding"].tobytes() for answer in plain.execute(texts, Durations())]
    assert together != alone


def test_a_part_of_several_rows_is_answered_row_by_row_with_the_bits_of_each_alone(tmp_path: Path) -> None:
    served, _ = fixed(put_onnx(tmp_path, "tiny_encoder"), batching=Batching(max_batch_size=4))
    random = np.random.default_rng(2)
    rows = [encoder_part(random, 20) for _ in range(6)]
    joined = {name: np.concatenate([row.inputs[name] for row in rows]) for name in ("ids", "mask")}
    (answer,) = served.execute([PartArrays(6, 20, joined, {})], Durations())
    alone = [served.execute([row], Durations())[0]["embedding"] for row in rows]
    assert answer["embedding"].tobytes() == np.concatenate(alone).tobytes()


def test_outputs_that_grow_are_cut_back_to_the_rows_own_length(tmp_path: Path) -> None:
    served, report = fixed(put_onnx(tmp_path, "masked_mean", "max_length = 64\n"), batching=Batching(max_batch_size=4))
    values = np.arange(5, dtype=np.float32).reshape(1, 5)
    part = PartArrays(1, 5, {"values": values, "mask": np.ones((1, 5), np.int64)}, {})
    (answer,) = served.execute([part], Durations())
    np.testing.assert_allclose(answer["centred"], values - 2)
    assert report.mode == "equal_lengths"


def test_where_padding_changes_answers_each_length_is_a_class_of_its_own(tmp_path: Path) -> None:
    served, report = fixed(put(tmp_path, "padded_mean"), "python")
    assert isinstance(served, InvariantExecutor)
    assert (report.mode, report.length_classes) == ("equal_lengths", ())
    part = PartArrays(1, 3, {"ids": np.array([[1, 2, 6]])}, {})
    assert [len(requests) for requests in executed(served, part)] == [32]


def executed(served: InvariantExecutor, part: PartArrays) -> list[Sequence[PartArrays]]:
    """What the executor inside is given to run."""
    seen: list[Sequence[PartArrays]] = []

    class Spy:
        def execute(self, parts: Sequence[PartArrays], durations: Durations) -> list[PartOutput]:
            seen.append(parts)
            return [{"vector": np.zeros((1, 4), np.float32)} for _ in parts]

    served._inner = Spy()  # type: ignore[assignment]
    served.execute([part], Durations())
    assert {parts[0].length for parts in seen} == {part.length}
    return seen


@pytest.mark.parametrize("name", ["mixes_up_rows", "batch_norm_in_training"])
def test_whose_answers_depend_on_company_runs_each_row_alone(tmp_path: Path, name: str) -> None:
    served, report = fixed(put(tmp_path, name), "python")
    assert (report.mode, isinstance(served, InvariantExecutor)) == ("unbatched", False)


NEARLY_CORRECT = """
import numpy as np

class Model:
    inputs = {"x": ("FP32", [-1, 6])}
    outputs = {"y": ("FP32", [-1, 6])}
    warm_up = True

    def execute(self, requests):
        return [{"y": request["x"] * np.float32(1 + place * 1e-7)} for place, request in enumerate(requests)]
"""


def test_a_last_bit_that_depends_on_the_place_is_within_the_tolerance_and_found_by_the_proof(tmp_path: Path) -> None:
    folder = python_model(tmp_path / "m" / "1", NEARLY_CORRECT)
    (tmp_path / "m" / "model.toml").write_text("")
    assert report_of(folder, "python").verdict == "safe"
    served, report = fixed(folder, "python")
    assert (report.mode, isinstance(served, InvariantExecutor)) == ("unbatched", False)
    assert "at place" in report.invariant.broken.batch


NEVER_QUITE_THE_SAME = NEARLY_CORRECT.replace("place * 1e-7", "np.random.random() * 1e-5")


def test_a_model_that_is_not_deterministic_does_not_get_away_with_running_alone(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="batch_invariant cannot be kept"):
        fixed(put(tmp_path, "not_deterministic"), "python")


def test_a_model_that_only_batches_change_runs_alone_where_nothing_changes_it(tmp_path: Path) -> None:
    report = fixed(put(tmp_path, "changes_with_use"), "python")[1]
    assert (report.verdict, report.mode) == ("not_deterministic", "unbatched")


def test_where_nothing_can_be_proven_each_row_runs_alone(tmp_path: Path) -> None:
    folder = python_model(tmp_path / "m" / "1", NEARLY_CORRECT.replace("warm_up = True", ""))
    (tmp_path / "m" / "model.toml").write_text("")
    report = fixed(folder, "python")[1]
    assert (report.verdict, report.mode, "nothing is proven" in report.reason) == ("not_judged", "unbatched", True)


def test_a_model_that_is_not_bit_equal_to_itself_cannot_be_invariant_and_does_not_load(tmp_path: Path) -> None:
    folder = python_model(tmp_path / "m" / "1", NEVER_QUITE_THE_SAME)
    (tmp_path / "m" / "model.toml").write_text("")
    with pytest.raises(LoadError, match="one row alone, run twice, differs in output 'y'"):
        fixed(folder, "python")


def test_invariant_mode_needs_to_know_the_longest_row(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="batch_invariant needs max_length"):
        fixed(put_onnx(tmp_path, "masked_mean"))


@pytest.mark.slow
def test_the_default_model_is_safe_by_a_wide_margin() -> None:
    folder = prepare(Path(__file__).parents[2] / ".headway" / "models") / "1"
    settings = msgspec.structs.replace(settings_of(folder), warm_up=WarmUp(enabled=False))
    loaded = context(folder, settings)
    executor: BatchExecutor = create("onnx")  # type: ignore[assignment]
    report = check(Subject(executor, executor.load(loaded), loaded, takes_made_up=True), 60 * SECOND)
    assert (report.verdict, report.batches) == ("safe", report.planned)
    assert report.worst is not None and 0 < report.worst.size < 0.1, "rounding, and little of it"

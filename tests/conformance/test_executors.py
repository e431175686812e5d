"""What every executor of batches must do, whatever runs inside it."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

from headway.wire.messages import ModelMeta
from headway.worker.executor import Durations, PartArrays, PartError
from tests.conformance.executors import FakeExecutor, assert_same, masked_mean, part, run

LENGTHS = [5, 1, 17, 5, 2]


@pytest.fixture(params=["fake", "onnx", "python", "torch.export", "torchscript"])
def loaded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, ModelMeta]:
    return masked_mean(request.param, tmp_path / "masked_mean" / "1")


@pytest.fixture
def executor(loaded: tuple[Any, ModelMeta]) -> Any:
    return loaded[0]


def test_it_says_which_inputs_and_outputs_are_padded(loaded: tuple[Any, ModelMeta]):
    meta = loaded[1]
    declared = {tensor.name: (tensor.datatype, tensor.shape, tensor.pad_axis) for tensor in meta.inputs + meta.outputs}
    assert declared == {
        "values": ("FP32", (-1, -1), 1),
        "mask": ("INT64", (-1, -1), 1),
        "mean": ("FP32", (-1,), None),
        "centred": ("FP32", (-1, -1), 1),
    }
    assert meta.per_row_parameters == ("scale",)
    assert not meta.streaming


def test_parts_of_mixed_lengths_in_one_batch_get_what_they_get_alone(executor: Any):
    parts = [part(1, length, seed) for seed, length in enumerate(LENGTHS)]
    for one, alone in zip(run(executor, parts), (run(executor, [each])[0] for each in parts), strict=True):
        assert_same(one, alone)


def test_every_executor_computes_the_same(executor: Any):
    parts = [part(1 + seed % 3, length, seed) for seed, length in enumerate(LENGTHS)]
    for one, reference in zip(run(executor, parts), run(FakeExecutor(), parts), strict=True):
        assert_same(one, reference)


def test_results_come_in_the_order_of_the_parts(executor: Any):
    constant = [
        PartArrays(1, 2, {"values": np.full((1, 2), n, np.float32), "mask": np.ones((1, 2), np.int64)}, {})
        for n in (3, 1, 2, 1)
    ]
    assert [output["mean"].tolist() for output in run(executor, constant)] == [[3], [1], [2], [1]]


def test_a_run_of_rows_stays_together_between_single_rows(executor: Any):
    run_of_three = part(3, 4, 1)
    rows = [
        PartArrays(1, 4, {name: array[n : n + 1] for name, array in run_of_three.inputs.items()}, {}) for n in range(3)
    ]
    single, together, other = run(executor, [part(1, 9, 2), run_of_three, part(1, 2, 3)])
    assert (len(single["mean"]), len(together["mean"]), len(other["mean"])) == (1, 3, 1)
    alone = run(executor, rows)
    assert_same(together, {name: np.concatenate([one[name] for one in alone]) for name in together})


def test_an_output_that_is_padded_is_cut_back_to_the_length_of_each_part(executor: Any):
    outputs = run(executor, [part(1, length, 0) for length in LENGTHS])
    assert [output["centred"].shape for output in outputs] == [(1, length) for length in LENGTHS]


def test_outputs_have_the_datatypes_that_were_declared(executor: Any):
    (output,) = run(executor, [part(2, 3, 0)])
    assert {name: array.dtype for name, array in output.items()} == {"mean": np.float32, "centred": np.float32}


def test_inputs_are_read_wherever_in_memory_they_begin(executor: Any):
    inputs = {"values": np.ones((1, 3), np.float32), "mask": np.ones((1, 3), np.int64)}
    odd = {
        name: np.frombuffer(b"-" + array.tobytes(), array.dtype, offset=1).reshape(1, 3)
        for name, array in inputs.items()
    }
    assert not odd["values"].flags.aligned
    assert run(executor, [PartArrays(1, 3, odd, {})])[0]["mean"].tolist() == [1]


def test_a_batch_may_be_one_row_of_length_one(executor: Any):
    assert run(executor, [part(1, 1, 0)])[0]["centred"].tolist() == [[0]]


def test_the_phases_of_a_batch_are_timed_and_fit_into_it(executor: Any):
    durations = Durations()
    begun = perf_counter_ns()
    executor.execute([part(1, length, 0) for length in LENGTHS], durations)
    elapsed = perf_counter_ns() - begun
    phases = (durations.hand_over, durations.execute, durations.finish)
    assert min(phases) > 0
    assert sum(phases) <= elapsed


def test_warming_up_measures_sizes_of_the_grid_that_was_asked_for(executor: Any):
    found = executor.warm_up((1, 3), (2, 8), 2)
    assert {(one.rows, one.length) for one in found} == {(1, 2), (1, 8), (3, 2), (3, 8)}
    assert all(one.duration > 0 for one in found)


def test_it_can_be_unloaded(executor: Any):
    executor.unload()


@pytest.mark.parametrize("loaded", ["fake", "python"], indirect=True)
def test_parameters_apply_row_by_row(executor: Any):
    parts = [part(1, 4, 0), part(1, 4, 0, scale=10), part(1, 4, 0, scale=-1)]
    plain, scaled, negated = (output["mean"] for output in run(executor, parts))
    np.testing.assert_allclose(scaled, plain * 10, rtol=1e-5)
    np.testing.assert_allclose(negated, -plain, rtol=1e-5)


@pytest.mark.parametrize("loaded", ["fake", "python"], indirect=True)
def test_one_part_may_fail_and_the_others_of_its_batch_succeed(executor: Any):
    bad = PartArrays(1, 2, {"values": np.ones((1, 2), np.float32), "mask": np.zeros((1, 2), np.int64)}, {})
    good, failed, also_good = run(executor, [part(1, 3, 1), bad, part(1, 5, 2)])
    assert isinstance(failed, PartError)
    assert (failed.code, failed.detail) == ("invalid_input", "a mask of zeros has no mean")
    assert_same(good, run(executor, [part(1, 3, 1)])[0])
    assert_same(also_good, run(executor, [part(1, 5, 2)])[0])

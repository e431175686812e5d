from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from headway.config.settings import Batching, Bounds, ModelSettings, Padding
from headway.wire.bfloat16 import from_float32, to_float32
from headway.wire.messages import InputMeta, ModelMeta
from headway.worker import devices
from headway.worker.errors import LoadError, ResultError
from headway.worker.executor import PartArrays, PartError
from headway.worker.onnx_executor import OnnxExecutor
from tests import models
from tests.conformance.executors import context, run


def load(folder: Path, settings: ModelSettings | None = None, device: str = "cpu") -> tuple[OnnxExecutor, ModelMeta]:
    executor = OnnxExecutor()
    return executor, executor.load(context(folder, settings or ModelSettings(), device))


def rows(name: str, *arrays: Any, dtype: Any = np.float32) -> list[PartArrays]:
    made = [np.array(array, dtype) for array in arrays]
    return [PartArrays(len(array), 1, {name: array}, {}) for array in made]


def test_names_datatypes_and_variable_dimensions_are_read_from_the_file(tmp_path: Path):
    folder = tmp_path / "argmax" / "1"
    models.argmax(folder)
    meta = load(folder)[1]
    assert meta.platform == "onnxruntime_onnx"
    assert meta.inputs == (InputMeta("x", "FP32", (-1, 5)),)
    assert meta.outputs == (InputMeta("label", "INT64", (-1,)),)
    assert meta.max_batch_size == 0


def test_an_integer_output_stays_one(tmp_path: Path):
    folder = tmp_path / "argmax" / "1"
    models.argmax(folder)
    executor, _ = load(folder)
    outputs = run(executor, rows("x", [[0, 9, 0, 0, 0], [0, 0, 0, 0, 1]], [[1, 0, 0, 0, 0]]))
    assert [output["label"].tolist() for output in outputs] == [[1, 4], [0]]
    assert outputs[0]["label"].dtype == np.int64


def test_half_precision_is_served(tmp_path: Path):
    folder = tmp_path / "half" / "1"
    models.affine_fp16(folder)
    executor, meta = load(folder)
    assert meta.inputs[0].datatype == "FP16"
    (output,) = run(executor, rows("x", [[1, 2, 3, 4]], dtype=np.float16))
    assert (output["y"].dtype, output["y"].tolist()) == (np.float16, [[2, 4, 6, 8]])


def test_an_input_with_a_default_in_the_graph_may_be_left_out(tmp_path: Path):
    folder = tmp_path / "two" / "1"
    models.two_inputs(folder)
    executor, meta = load(folder)
    assert [(one.name, one.optional) for one in meta.inputs] == [("a", False), ("b", True)]
    a, b = np.full((2, 3), 3, np.float32), np.full((2, 3), 2, np.float32)
    (without,) = run(executor, [PartArrays(2, 1, {"a": a}, {})])
    (both,) = run(executor, [PartArrays(2, 1, {"a": a, "b": b}, {})])
    assert (without["product"] == 3).all() and (both["product"] == 6).all()


def test_a_batch_smaller_than_the_file_is_fixed_to_is_filled_up_and_cut_back(tmp_path: Path):
    folder = tmp_path / "fixed" / "1"
    models.fixed_batch(folder, rows=4)
    executor, meta = load(folder)
    assert (meta.max_batch_size, meta.inputs[0].shape) == (4, (-1, 2))
    outputs = run(executor, rows("x", [[1, 2]], [[3, 4], [5, 6]]))
    assert [output["y"].tolist() for output in outputs] == [[[2, 4]], [[6, 8], [10, 12]]]
    with pytest.raises(ResultError, match="model fixed/1 takes 4 rows at once, got 5"):
        run(executor, rows("x", np.zeros((5, 2))))


def test_text_goes_in_and_comes_out_as_utf8(tmp_path: Path):
    folder = tmp_path / "echo" / "1"
    models.echo_text(folder)
    executor, meta = load(folder)
    assert (meta.inputs[0].datatype, meta.outputs[0].datatype) == ("BYTES", "BYTES")
    outputs = run(executor, rows("text", [[b"a"], ["ü".encode()]], [[b""]], dtype=object))
    assert [output["same"].tolist() for output in outputs] == [[["a"], ["ü"]], [[""]]]


def test_bytes_that_are_not_utf8_fail_alone(tmp_path: Path):
    folder = tmp_path / "echo" / "1"
    models.echo_text(folder)
    executor, _ = load(folder)
    good, bad = run(executor, rows("text", [[b"a"]], [[b"\xff"]], dtype=object))
    assert good["same"].tolist() == [["a"]]
    assert isinstance(bad, PartError)
    assert bad.code == "invalid_input"
    (alone,) = run(executor, rows("text", [[b"\xff"]], dtype=object))
    assert isinstance(alone, PartError)


def test_a_wrong_number_of_rows_names_the_model_and_both_numbers(tmp_path: Path):
    folder = tmp_path / "loses" / "2"
    models.loses_rows(folder)
    executor, _ = load(folder)
    with pytest.raises(ResultError, match="model loses/2 returned 1 rows in output 'y' for 3 rows"):
        run(executor, rows("x", [[1, 2]], [[3, 4], [5, 6]]))


def test_padding_values_are_those_that_were_declared(tmp_path: Path):
    folder = tmp_path / "tail" / "1"
    last = helper.make_node("Gather", ["x", "last"], ["y"], axis=1)
    models.write(
        folder,
        [last],
        [models.tensor("x", TensorProto.FLOAT, ["batch", "length"])],
        [models.tensor("y", TensorProto.FLOAT, ["batch"])],
        (models.constant("last", np.int64(-1)),),
    )
    executor, meta = load(folder, ModelSettings(inputs={"x": Padding(pad_value=-7)}))
    assert meta.inputs[0].pad_value == -7
    assert [output["y"].tolist() for output in run(executor, rows("x", [[1, 2, 3]], [[4]]))] == [[3], [-7]]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            ModelSettings(inputs={"valeus": Padding()}),
            "model m/1: inputs.valeus: the model has no input of that name, it has mask, values; did you mean 'values'",
        ),
        (ModelSettings(inputs={"mask": Padding(pad_axis=2)}), r"shape \[-1, -1\] has no such axis, its last is 1"),
        (ModelSettings(outputs={"centred": Padding()}), "outputs.centred is padded, but no input is"),
        (
            ModelSettings(inputs={"mask": Padding()}, outputs={"mean": Padding()}),
            r"model m/1: outputs.mean.pad_axis = 1: output 'mean' of shape \[-1\] has no such axis",
        ),
    ],
)
def test_padding_that_the_model_cannot_have_is_refused_at_load(tmp_path: Path, settings: ModelSettings, complaint: str):
    models.masked_mean(tmp_path / "m" / "1")
    with pytest.raises(LoadError, match=complaint):
        load(tmp_path / "m" / "1", settings)


def test_bounds_for_an_input_that_is_not_there_are_refused_at_load_with_the_name_meant(tmp_path: Path):
    models.lookup(tmp_path / "m" / "1")
    complaint = "model m/1: bounds.id: the model has no input of that name, it has ids; did you mean 'ids'"
    with pytest.raises(LoadError, match=complaint):
        load(tmp_path / "m" / "1", ModelSettings(bounds={"id": Bounds(0, 4)}))


def test_bounds_for_text_are_refused_at_load(tmp_path: Path):
    models.echo_text(tmp_path / "m" / "1")
    with pytest.raises(LoadError, match=r"bounds.text: input 'text' is BYTES; only numbers have bounds"):
        load(tmp_path / "m" / "1", ModelSettings(bounds={"text": Bounds(0, 4)}))


def test_an_output_that_grows_with_the_padding_and_does_not_say_so_is_refused(tmp_path: Path):
    models.masked_mean(tmp_path / "m" / "1")
    padded = {"values": Padding(), "mask": Padding()}
    complaint = (
        r"model m/1: output 'centred' has size 3 along axis 1 for inputs of length 3, and 5 for 5, so padding would "
        r"stay in it: say \[outputs.centred\] pad_axis = 1"
    )
    with pytest.raises(LoadError, match=complaint):
        load(tmp_path / "m" / "1", ModelSettings(inputs=padded))
    load(tmp_path / "m" / "1", ModelSettings(inputs=padded, outputs={"centred": Padding()}))


@pytest.mark.parametrize("outputs", [{}, {"y": Padding()}])
def test_an_output_that_grows_otherwise_than_its_input_is_refused(tmp_path: Path, outputs: dict[str, Padding]):
    models.write(
        tmp_path / "m" / "1",
        [helper.make_node("Concat", ["x", "x"], ["y"], axis=1)],
        [models.tensor("x", TensorProto.FLOAT, ["batch", "length"])],
        [models.tensor("y", TensorProto.FLOAT, ["batch", None])],
    )
    with pytest.raises(
        LoadError, match="size 6 along axis 1 for inputs of length 3, and 10 for 5, which cannot be cut"
    ):
        load(tmp_path / "m" / "1", ModelSettings(inputs={"x": Padding()}, outputs=outputs))


def test_an_output_of_unknown_size_that_does_not_grow_needs_no_padding(tmp_path: Path):
    models.write(
        tmp_path / "m" / "1",
        [helper.make_node("ReduceSum", ["x", "axis"], ["y"], keepdims=1)],
        [models.tensor("x", TensorProto.FLOAT, ["batch", "length"])],
        [models.tensor("y", TensorProto.FLOAT, ["batch", None])],
        (models.constant("axis", np.array([1], np.int64)),),
    )
    load(tmp_path / "m" / "1", ModelSettings(inputs={"x": Padding()}))


def test_a_fixed_dimension_cannot_be_padded(tmp_path: Path):
    models.affine(tmp_path / "m" / "1")
    with pytest.raises(LoadError, match="has a fixed size there and cannot be padded"):
        load(tmp_path / "m" / "1", ModelSettings(inputs={"x": Padding()}))


def test_inputs_fixed_to_different_numbers_of_rows_are_refused(tmp_path: Path):
    models.write(
        tmp_path / "m" / "1",
        [helper.make_node("Add", ["a", "b"], ["y"])],
        [models.tensor("a", TensorProto.FLOAT, [1, 2]), models.tensor("b", TensorProto.FLOAT, [4, 2])],
        [models.tensor("y", TensorProto.FLOAT, [4, 2])],
    )
    with pytest.raises(LoadError, match="fixed to different sizes: a to 1, b to 4"):
        load(tmp_path / "m" / "1")


def test_a_scalar_input_has_no_rows_and_is_refused(tmp_path: Path):
    models.write(
        tmp_path / "m" / "1",
        [helper.make_node("Identity", ["a"], ["y"])],
        [models.tensor("a", TensorProto.FLOAT, [])],
        [models.tensor("y", TensorProto.FLOAT, [])],
    )
    with pytest.raises(LoadError, match="input 'a' is a scalar; its first dimension must be the rows"):
        load(tmp_path / "m" / "1")


def test_an_output_that_is_no_tensor_is_refused_by_name(tmp_path: Path):
    sequence = helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None)
    models.write(
        tmp_path / "m" / "1",
        [helper.make_node("SequenceConstruct", ["a"], ["parts"])],
        [models.tensor("a", TensorProto.FLOAT, ["batch", 2])],
        [sequence],
    )
    with pytest.raises(LoadError, match=r"output 'parts' is a seq\(tensor\(float\)\); only tensors"):
        load(tmp_path / "m" / "1")


def test_a_broken_file_fails_to_load(tmp_path: Path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(Exception, match=r"model.onnx"):
        load(tmp_path / "m" / "1")


def test_a_device_that_is_not_there_is_refused_by_name(tmp_path: Path):
    models.affine(tmp_path / "m" / "1")
    with pytest.raises(LoadError, match='model m/1: device \'gpu\': expected "cpu" or "cuda:N"'):
        load(tmp_path / "m" / "1", device="gpu")
    with pytest.raises(LoadError, match="has no CUDAExecutionProvider, only CPUExecutionProvider; install"):
        devices.providers("m/1", "cuda:0", ["CPUExecutionProvider"])
    with pytest.raises(LoadError, match="CUDA did not start"):
        devices.check_used("m/1", "cuda:0", ["CPUExecutionProvider"])


def test_a_device_that_is_there_is_used_with_its_number():
    found = devices.providers("m/1", "cuda:1", ["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert found == [("CUDAExecutionProvider", {"device_id": 1}), "CPUExecutionProvider"]
    devices.check_used("m/1", "cuda:1", ["CUDAExecutionProvider"])


def test_warming_up_leaves_out_sizes_above_the_cap_in_tokens(tmp_path: Path):
    models.masked_mean(tmp_path / "m" / "1")
    padded = ModelSettings(
        inputs={"values": Padding(), "mask": Padding()},
        outputs={"centred": Padding()},
        batching=Batching(max_batch_tokens=32),
    )
    executor, _ = load(tmp_path / "m" / "1", padded)
    found = executor.warm_up((1, 4), (8, 16), 1)
    assert {(one.rows, one.length) for one in found} == {(1, 8), (1, 16), (4, 8)}


def test_an_input_of_unknown_size_is_not_warmed_up(tmp_path: Path):
    models.masked_mean(tmp_path / "m" / "1")
    executor, _ = load(tmp_path / "m" / "1")
    assert executor.warm_up((1,), (1,), 1) == []


def test_a_model_that_does_not_take_ones_is_warmed_up_with_zeros(tmp_path: Path):
    models.write(
        tmp_path / "m" / "1",
        [helper.make_node("Gather", ["table", "index"], ["y"], axis=0)],
        [models.tensor("index", TensorProto.INT64, ["batch", 1])],
        [models.tensor("y", TensorProto.FLOAT, ["batch", 1])],
        (models.constant("table", np.array([5], np.float32)),),
    )
    executor, _ = load(tmp_path / "m" / "1")
    assert [(one.rows, one.length) for one in executor.warm_up((2,), (1,), 1)] == [(2, 1)]


def test_weights_that_are_listed_as_inputs_are_not_inputs_of_a_request(tmp_path: Path):
    file = models.affine(tmp_path / "m" / "1")
    model = onnx.load(str(file))
    model.graph.input.append(models.tensor("scale", TensorProto.FLOAT, []))
    onnx.save(model, str(file))
    assert [one.name for one in load(tmp_path / "m" / "1")[1].inputs] == ["x"]


def test_bf16_goes_in_and_out_as_uint16_whatever_is_batched_with_it(tmp_path: Path):
    folder = tmp_path / "twice" / "1"
    models.bfloat16_twice(folder)
    executor, meta = load(folder)
    assert [tensor.datatype for tensor in (*meta.inputs, *meta.outputs)] == ["BF16", "BF16", "FP32"]
    values = [from_float32(np.array(value)) for value in ([[1.5, -0.1]], [[3e38, 1e-40], [np.nan, 0]])]
    outputs = run(executor, [PartArrays(len(value), 1, {"x": value}, {}) for value in values])
    for value, output in zip(values, outputs, strict=True):
        with np.errstate(over="ignore"):
            wide = to_float32(value) * 2
        np.testing.assert_array_equal(output["z"], wide)
        assert output["y"].dtype == np.uint16
        np.testing.assert_array_equal(to_float32(output["y"]), to_float32(from_float32(wide)))
    assert run(executor, [PartArrays(1, 1, {"x": np.empty((1, 0), np.uint16)}, {})])[0]["y"].shape == (1, 0)


def test_bf16_results_stay_what_they_are_when_the_session_runs_again(tmp_path: Path):
    folder = tmp_path / "twice" / "1"
    models.bfloat16_twice(folder)
    executor, _ = load(folder)
    values = [from_float32(np.full((1, 4096), value)) for value in range(20)]
    kept = [run(executor, [PartArrays(1, 1, {"x": value}, {})])[0] for value in values]
    for number, output in enumerate(kept):
        assert (to_float32(output["y"]) == 2 * number).all() and (output["z"] == 2 * number).all()

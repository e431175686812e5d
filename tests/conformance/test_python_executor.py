from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.config.settings import ModelSettings
from headway.wire.bfloat16 import from_float32, to_float32
from headway.wire.messages import InputMeta, ModelMeta
from headway.worker import devices
from headway.worker.errors import InputError, LoadError, ResultError
from headway.worker.executor import PartArrays, PartError
from headway.worker.python_executor import PythonExecutor
from tests.conformance.executors import context, python_model, run

EXAMPLES = Path(__file__).parents[2] / "examples"

DECLARED = """
import numpy as np
class Model:
    inputs = {"x": ("FP32", [-1, 2])}
    outputs = {"y": ("FP32", [-1, 2])}
"""


def load(folder: Path, code: str, **settings: Any) -> tuple[PythonExecutor, ModelMeta]:
    executor = PythonExecutor()
    return executor, executor.load(context(python_model(folder / "toy" / "1", code), ModelSettings(**settings)))


def executing(folder: Path, expression: str) -> PythonExecutor:
    """A model whose execute returns the value of `expression` (of `requests`)."""
    return load(folder, DECLARED + f"    def execute(self, requests): return {expression}\n")[0]


def two_parts() -> list[PartArrays]:
    return [
        PartArrays(1, 1, {"x": np.array([[1, 2]], np.float32)}, {}),
        PartArrays(2, 1, {"x": np.array([[3, 4], [5, 6]], np.float32)}, {"k": "v"}),
    ]


def test_a_class_says_what_it_takes_and_gives(tmp_path: Path):
    meta = load(tmp_path, DECLARED + "    optional_inputs = {'s': ('BYTES', [-1])}\n    def execute(self, r): ...\n")[1]
    assert meta.platform == "python"
    assert meta.inputs == (InputMeta("x", "FP32", (-1, 2)), InputMeta("s", "BYTES", (-1,), optional=True))
    assert meta.outputs == (InputMeta("y", "FP32", (-1, 2)),)


def test_requests_are_dicts_with_rows_length_and_parameters(tmp_path: Path):
    seen = "[print() or {'y': r['x'] * 0 + [r.rows, len(r.parameters)]} for r in requests]"
    one, two = run(executing(tmp_path, seen), two_parts())
    assert (one["y"].tolist(), two["y"].tolist()) == ([[1, 0]], [[2, 1], [2, 1]])


def test_lists_and_wider_floats_are_made_what_was_declared(tmp_path: Path):
    one, two = run(executing(tmp_path, "[{'y': (r['x'] * 2).astype('f8').tolist()} for r in requests]"), two_parts())
    assert one["y"].dtype == np.float32
    assert (one["y"].tolist(), two["y"].tolist()) == ([[2, 4]], [[6, 8], [10, 12]])


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("[{'y': r['x']} for r in requests][:1]", "model toy/1 returned 1 results for 2 requests"),
        ("[{'y': r['x']} for r in requests] * 2", "model toy/1 returned 4 results for 2 requests"),
        ("None", "model toy/1 returned a NoneType; expected a list of results"),
        ("[{'y': r['x'][:1]} for r in requests]", "returned 1 rows in output 'y' for a request of 2"),
    ],
)
def test_a_wrong_number_fails_the_batch_naming_the_model_and_both_numbers(
    tmp_path: Path, expression: str, complaint: str
):
    with pytest.raises(ResultError, match=complaint):
        run(executing(tmp_path, expression), two_parts())


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        ("{'z': r['x'], 'y': r['x']}", "model toy/1 returned unknown output 'z'; it declares y"),
        ("{}", "model toy/1 returned no output 'y'"),
        ("{'y': r['x'].astype(complex)}", "model toy/1 returned output 'y' as complex128; it declares FP32"),
        ("{'y': r['x'][:, :1]}", "of shape [2, 1]; it declares [-1, 2]"),
        ("{'y': [[1], [1, 2]]}", "model toy/1 returned output 'y' that is no array"),
        ("7", "model toy/1 returned a int; expected a dict of outputs, or an exception"),
        ("KeyError('k')", "model toy version 1: KeyError: 'k'"),
    ],
)
def test_a_wrong_result_fails_its_request_alone(tmp_path: Path, result: str, complaint: str):
    good, bad = run(
        executing(tmp_path, f"[{{'y': r['x']}} if r.rows == 1 else {result} for r in requests]"), two_parts()
    )
    assert good["y"].tolist() == [[1, 2]]
    assert isinstance(bad, PartError)
    assert bad.code == "model_error"
    assert complaint in bad.detail


def test_what_a_model_raises_is_raised(tmp_path: Path):
    with pytest.raises(ZeroDivisionError):
        run(executing(tmp_path, "1 / 0"), two_parts())


def test_a_model_is_loaded_once_with_its_context_and_may_import_from_its_folder(tmp_path: Path):
    folder = tmp_path / "toy" / "1"
    folder.mkdir(parents=True)
    (folder / "beside_toy.py").write_text("OFFSET = 5\n")
    code = (
        "from beside_toy import OFFSET\n"
        + DECLARED
        + (
            "    def load(self, context):\n"
            "        self.shift = context.settings.options['shift'] + OFFSET + context.threads\n"
            "    def execute(self, requests): return [{'y': r['x'] + self.shift} for r in requests]\n"
            "    def unload(self): self.shift = None\n"
        )
    )
    executor, _ = load(tmp_path, code, options={"shift": 10})
    assert run(executor, two_parts())[0]["y"].tolist() == [[17, 18]]
    executor.unload()
    assert executor._model.shift is None


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("x = 1", "model toy/1: model.py defines no class Model"),
        ("class Model: ...", "has neither execute"),
        ("class Model:\n def execute(self, r): ...\n def stream(self, r): ...", "has both execute and stream"),
        ("class Model:\n def execute(self, r): ...", "class Model must declare its inputs and outputs"),
        ("class Model:\n inputs = ['x']\n def execute(self, r): ...", "Model.inputs must be a dict like"),
        (
            "class Model:\n inputs = {'x': 'FP32'}\n def execute(self, r): ...",
            r"Model.inputs\['x'\] must be a name with",
        ),
        (
            "class Model:\n inputs = {'x': ('FP23', [-1])}\n def execute(self, r): ...",
            "unknown datatype 'FP23', known are BOOL, .* did you mean 'FP32'",
        ),
        ("class Model:\n inputs = {'x': ('FP32', 4)}\n def execute(self, r): ...", "shape must be a list of sizes"),
        ("class Model:\n inputs = {'x': ('FP32', [4])}\n def execute(self, r): ...", "the first dimension must be -1"),
    ],
)
def test_a_class_that_cannot_be_served_is_refused_at_load(tmp_path: Path, code: str, complaint: str):
    with pytest.raises(LoadError, match=complaint):
        load(tmp_path, code)


def test_a_folder_without_model_py_is_refused(tmp_path: Path):
    with pytest.raises(LoadError, match=r"there is no .*model.py"):
        PythonExecutor().load(context(tmp_path / "toy" / "1"))


def test_a_python_model_is_warmed_up_only_when_it_asks(tmp_path: Path):
    code = DECLARED + "    def execute(self, requests): return [{'y': r['x']} for r in requests]\n"
    assert load(tmp_path, code)[0].warm_up((1, 2), (1,), 2) == []
    found = load(tmp_path, code + "    warm_up = True\n")[0].warm_up((1, 2), (1,), 2)
    assert [(one.rows, one.length) for one in found] == [(1, 1), (1, 1), (2, 1), (2, 1)]


def example(name: str, folder: Path, **settings: Any) -> tuple[PythonExecutor, ModelMeta]:
    shutil.copytree(EXAMPLES / name, folder / name)
    executor = PythonExecutor()
    return executor, executor.load(context(folder / name / "1", ModelSettings(**settings)))


def test_the_example_upper_answers_in_capitals_and_fails_bytes_that_are_no_text_alone(tmp_path: Path):
    executor, _ = example("upper", tmp_path)
    parts = [PartArrays(1, 1, {"text": np.array([[text]], object)}, {}) for text in (b"a b", b"\xff", "ß".encode())]
    first, bad, last = run(executor, parts)
    assert (first["upper"].tolist(), last["upper"].tolist()) == ([["A B"]], [["SS"]])
    assert isinstance(bad, PartError)
    assert bad.code == "invalid_input"


def test_the_example_toy_stream_yields_word_by_word_up_to_its_limit(tmp_path: Path):
    executor, meta = example("toy-stream", tmp_path)
    assert meta.streaming
    assert list(executor.start({"text_input": "a b c", "parameters": {"max_tokens": 2}})) == [
        {"text_output": "a", "index": 0},
        {"text_output": " b", "index": 1},
    ]
    assert list(executor.start({"text_input": ""})) == []


@pytest.mark.parametrize("body", [{}, {"text_input": 5}, {"text_input": "a", "parameters": {"max_tokens": -1}}])
def test_the_example_toy_stream_blames_the_sender_for_what_it_cannot_read(tmp_path: Path, body: dict[str, Any]):
    executor, _ = example("toy-stream", tmp_path)
    with pytest.raises(InputError, match=r"text_input|max_tokens"):
        next(executor.start(body))


def test_a_gpu_is_refused_where_the_machine_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = python_model(tmp_path / "toy" / "1", DECLARED + "    def execute(self, requests): return requests\n")
    monkeypatch.setattr(devices, "NVIDIA", (tmp_path / "nothing",))
    with pytest.raises(LoadError, match="model toy/1: device 'cuda:7': this machine has no NVIDIA driver"):
        PythonExecutor().load(context(folder, ModelSettings(), "cuda:7"))
    monkeypatch.setattr(devices, "NVIDIA", (tmp_path,))
    PythonExecutor().load(context(folder, ModelSettings(), "cuda:7"))  # a driver, and nothing that says how many
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(devices, "GPUS", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(LoadError, match="model toy/1: device 'cuda:7': there is cuda:0 to cuda:1"):
        PythonExecutor().load(context(folder, ModelSettings(), "cuda:7"))
    PythonExecutor().load(context(folder, ModelSettings(), "cuda:1"))


@pytest.mark.parametrize(
    ("visible", "count", "problem"),
    [
        (None, 3, ""),
        ("0,2", 2, "there is cuda:0 to cuda:1 (CUDA_VISIBLE_DEVICES = '0,2')"),
        ("1", 1, "there is cuda:0 alone (CUDA_VISIBLE_DEVICES = '1')"),
        ("0,-1,2", 1, "there is cuda:0 alone (CUDA_VISIBLE_DEVICES = '0,-1,2')"),
        ("", 0, "there is no GPU (CUDA_VISIBLE_DEVICES = '')"),
    ],
)
def test_gpus_that_are_hidden_by_the_environment_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int, problem: str
):
    for number in range(3):
        (tmp_path / f"nvidia{number}").touch()
    monkeypatch.setattr(devices, "NVIDIA", (tmp_path,))
    monkeypatch.setattr(devices, "GPUS", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices.gpu_count() == count
    assert devices.absent("cuda:2") == problem
    assert devices.absent("cpu") == ""


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("r['x']", [1.5, -0.10009765625]),
        ("to_float32(r['x']) * 2", [3.0, -0.2001953125]),
        ("(to_float32(r['x']) * 2).astype('f8').tolist()", [3.0, -0.2001953125]),
        ("[[3, -7]]", [3.0, -7.0]),
        ("np.array([[0.5, 2]], ml_dtypes.bfloat16)", [0.5, 2.0]),
    ],
)
def test_bf16_comes_as_uint16_and_goes_as_that_or_as_numbers(tmp_path: Path, expression: str, expected: list[float]):
    code = f"""
import ml_dtypes, numpy as np
from headway.wire.bfloat16 import to_float32
class Model:
    inputs = {{"x": ("BF16", [-1, 2])}}
    outputs = {{"y": ("BF16", [-1, 2])}}
    def execute(self, requests): return [{{"y": {expression}}} for r in requests]
"""
    executor, meta = load(tmp_path, code)
    assert meta.inputs[0].datatype == "BF16"
    (output,) = run(executor, [PartArrays(1, 1, {"x": from_float32(np.array([[1.5, -0.1]]))}, {})])
    assert output["y"].dtype == np.uint16
    assert to_float32(output["y"]).tolist() == [expected]


def test_what_is_no_number_is_no_bf16(tmp_path: Path):
    code = """
class Model:
    inputs = {"x": ("BF16", [-1])}
    outputs = {"y": ("BF16", [-1])}
    def execute(self, requests): return [{"y": [1j]} for r in requests]
"""
    (output,) = run(load(tmp_path, code)[0], [PartArrays(1, 1, {"x": np.zeros(1, np.uint16)}, {})])
    assert isinstance(output, PartError) and "complex128; it declares BF16" in output.detail

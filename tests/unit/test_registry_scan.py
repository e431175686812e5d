"""The model repository: what is found, and what is said about what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from headway.config.errors import ConfigError
from headway.registry.scan import FILES, scan
from headway.registry.spec import default_versions


def put(root: Path, *names: str, text: str = "") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def problems_of(root: Path, **overrides: dict[str, object]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        scan(root, overrides)
    return [str(problem).replace(f"{root}/", "") for problem in caught.value.problems]


def test_every_version_is_found_in_order(tmp_path: Path) -> None:
    put(tmp_path, "b/10/model.onnx", "b/9/model.onnx", "a/1/model.py")
    found = [(spec.model, spec.version, spec.executor, spec.path) for spec in scan(tmp_path)]
    assert found == [
        ("a", 1, "python", str(tmp_path / "a/1")),
        ("b", 9, "onnx", str(tmp_path / "b/9")),
        ("b", 10, "onnx", str(tmp_path / "b/10")),
    ]


def test_the_highest_version_is_the_default_unless_one_is_set(tmp_path: Path) -> None:
    put(tmp_path, "a/9/model.py", "a/10/model.py", "b/1/model.py", "b/2/model.py")
    put(tmp_path, "b/model.toml", text="default_version = 1\n")
    assert default_versions(scan(tmp_path)) == {"a": 10, "b": 1}


def test_a_default_version_must_exist(tmp_path: Path) -> None:
    put(tmp_path, "a/1/model.py", "a/3/model.py")
    put(tmp_path, "a/model.toml", text="default_version = 2\n")
    assert problems_of(tmp_path) == ["a/model.toml: default_version: expected a version that is there (1, 3), got 2"]


def test_both_files_need_a_word_which_one(tmp_path: Path) -> None:
    put(tmp_path, "a/1/model.py", "a/1/model.onnx")
    (problem,) = problems_of(tmp_path)
    assert problem.startswith("a/1: found both model.onnx and model.py")
    put(tmp_path, "a/model.toml", text='executor = "python"\n')
    assert [spec.executor for spec in scan(tmp_path)] == ["python"]


def test_an_executor_without_its_file_is_told(tmp_path: Path) -> None:
    put(tmp_path, "a/1/model.py")
    put(tmp_path, "a/model.toml", text='executor = "onnx"\n')
    assert problems_of(tmp_path) == ['a/1: executor = "onnx" in model.toml, but found only model.py']


def test_a_version_without_a_model_says_what_is_there(tmp_path: Path) -> None:
    put(tmp_path, "a/1/weights.bin")
    assert problems_of(tmp_path) == [f"a/1: expected {FILES}, found weights.bin"]


def test_a_model_without_versions_is_told(tmp_path: Path) -> None:
    put(tmp_path, "a/model.onnx")
    assert problems_of(tmp_path) == [
        "a/model.onnx: expected in a version's folder, for example a/1/model.onnx",
        f"a: holds no version; expected NAME/VERSION/ with {FILES}; VERSION a whole number from 1",
    ]


def test_a_model_one_level_too_high_is_told(tmp_path: Path) -> None:
    put(tmp_path, "resnet.onnx", "a/1/model.py", "README.md")
    (problem,) = problems_of(tmp_path)
    assert problem.startswith("resnet.onnx: a model's file in the repository's own folder")


@pytest.mark.parametrize("version", ["v1", "0", "01", "1.0", "-1"])
def test_a_version_is_a_whole_number(tmp_path: Path, version: str) -> None:
    put(tmp_path, f"a/{version}/model.py", "a/1/model.py")
    assert problems_of(tmp_path) == [f"a/{version}: not a version: expected a whole number from 1, such as 1 or 12"]


@pytest.mark.parametrize("name", ["a b", "ä", "-a", "a:b"])
def test_a_name_must_fit_into_a_url(tmp_path: Path, name: str) -> None:
    put(tmp_path, f"{name}/1/model.py")
    (problem,) = problems_of(tmp_path)
    assert "not a name for a model" in problem


def test_hidden_and_private_folders_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "a/1/model.py", "a/.cache/x", "a/__pycache__/x", ".git/x", "_old/x")
    assert [spec.name for spec in scan(tmp_path)] == ["a/1"]


def test_a_tokenizer_that_is_named_must_lie_beside_the_model(tmp_path: Path) -> None:
    put(tmp_path, "a/1/model.onnx")
    put(tmp_path, "a/model.toml", text="[embeddings]\n")
    (problem,) = problems_of(tmp_path)
    assert problem.startswith("a/1: expected the tokenizer 'tokenizer.json' here or in a/")
    put(tmp_path, "a/1/tokenizer.json")
    assert scan(tmp_path)[0].settings.embeddings is not None


def test_problems_of_all_models_are_told_at_once(tmp_path: Path) -> None:
    put(tmp_path, "a/x/model.py", "b/1/nothing", "c/1/model.py")
    put(tmp_path, "c/model.toml", text="bogus = 1\n[batching]\nmax_batch_sise = 3\n")
    places = [problem.split(": ")[:2] for problem in problems_of(tmp_path)]
    assert [place[0] for place in places] == ["a/x", "b/1", "c/model.toml", "c/model.toml"]
    assert places[3][1] == "batching.max_batch_sise"


def test_an_override_of_a_model_that_is_not_there_is_told(tmp_path: Path) -> None:
    put(tmp_path, "minilm/1/model.py")
    (problem,) = problems_of(tmp_path, minilmm={"instances": 2})
    assert problem == f"[models.minilmm]: no such model in {tmp_path}; did you mean 'minilm'?"


def test_overrides_reach_the_version(tmp_path: Path) -> None:
    put(tmp_path, "a/1/model.py")
    assert scan(tmp_path, {"a": {"instances": 2}})[0].settings.instances == 2


def test_a_repository_that_is_empty_or_missing_is_told(tmp_path: Path) -> None:
    assert "holds no model" in problems_of(tmp_path)[0]
    with pytest.raises(ConfigError, match="does not exist"):
        scan(tmp_path / "absent")


ENCODER = '{"model_type": "bert", "vocab_size": 100, "max_position_embeddings": 64, "type_vocab_size": 2}'


def test_a_longest_request_needs_an_input_that_is_padded(tmp_path: Path) -> None:
    put(tmp_path, "a/1/model.onnx")
    put(tmp_path, "a/model.toml", text="max_length = 8\n")
    (problem,) = problems_of(tmp_path)
    assert problem.startswith("a/model.toml: max_length: expected an input that is padded")
    put(tmp_path, "a/model.toml", text="[inputs.x]\n")
    assert scan(tmp_path, {"a": {"max_length": 8}})[0].settings.max_length == 8


def test_an_encoders_folder_says_itself_what_is_padded(tmp_path: Path) -> None:
    put(tmp_path, "a/1/model.safetensors")
    put(tmp_path, "a/1/config.json", text=ENCODER)
    put(tmp_path, "a/model.toml", text="max_length = 32\nbatch_invariant = true\n")
    assert scan(tmp_path)[0].settings.max_length == 32


@pytest.mark.parametrize("place", ["max_length", "embeddings.max_length"])
def test_an_encoder_is_not_promised_more_tokens_than_it_has_positions_for(tmp_path: Path, place: str) -> None:
    put(tmp_path, "a/1/model.safetensors", "a/1/tokenizer.json")
    put(tmp_path, "a/1/config.json", text=ENCODER)
    put(tmp_path, "a/model.toml", text=f"{place} = 65\n")
    assert problems_of(tmp_path) == [f"a/1: {place} = 65: expected at most 64, the model has no more positions"]


def test_a_table_for_torch_is_refused_where_nothing_runs_by_torch(tmp_path: Path) -> None:
    put(tmp_path, "a/1/model.onnx", "a/2/model.onnx")
    put(tmp_path, "a/model.toml", text='[torch]\ndtype = "bfloat16"\n')
    (problem,) = problems_of(tmp_path)
    assert problem.startswith("a/model.toml: torch: expected no such table") and problem.endswith('run by "onnx"')
    put(tmp_path, "a/3/model.pt2")
    assert len(scan(tmp_path)) == 3, "some version is"


NAMED_WRONG = """
[tolerances.scor]
relative = 0.5
[outputs.nothing]
[inputs.x]
[bounds.y]
minimum = 0
"""
WRITTEN = """
class Model:
    inputs = {"x": ("FP32", [-1, -1])}
    optional_inputs = {"z": ("FP32", [-1])}
    outputs: dict = {"score": ("FP32", [-1])}
"""


@pytest.mark.parametrize("kind", ["onnx", "python", "script"])
def test_a_setting_for_an_input_or_output_that_a_version_does_not_have_is_told(tmp_path: Path, kind: str) -> None:
    put(tmp_path, "m/model.toml", text=NAMED_WRONG)
    inputs = "x"
    if kind == "onnx":
        (tmp_path / "m/1").mkdir()
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Add", ["x", "w"], ["score"])],
            "g" * 300,
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 4])],
            [onnx.helper.make_tensor_value_info("score", onnx.TensorProto.FLOAT, ["N", 4])],
            [onnx.numpy_helper.from_array(np.zeros(4000, np.float32), "w")],
        )
        onnx.save(onnx.helper.make_model(graph), tmp_path / "m/1/model.onnx")
    elif kind == "python":
        put(tmp_path, "m/1/model.py", text=WRITTEN)
        inputs = "x, z"
    else:
        put(tmp_path, "m/1/model.pt")
        with (tmp_path / "m/model.toml").open("a") as file:
            file.write('[torch.inputs]\nx = ["FP32", [-1, 4]]\n[torch.outputs]\nscore = ["FP32", [-1, 4]]\n')
    assert problems_of(tmp_path) == [
        f"m/model.toml: bounds.y: version 1 has no input 'y', it has {inputs}",
        "m/model.toml: outputs.nothing: version 1 has no output 'nothing', it has score",
        "m/model.toml: tolerances.scor: version 1 has no output 'scor', it has score; did you mean 'score'?",
    ]


@pytest.mark.parametrize(
    "code", ["class Model:\n    inputs = outputs = declared()\n", "class Model(Base):\n    pass\n", "def (", "\0"]
)
def test_names_that_only_running_the_model_would_tell_are_left_to_the_worker(tmp_path: Path, code: str) -> None:
    put(tmp_path, "m/model.toml", text=NAMED_WRONG)
    put(tmp_path, "m/1/model.py", text=code)
    assert len(scan(tmp_path)) == 1


@pytest.mark.parametrize(
    "content", [b"", b"\x3a", b"\x3a\xff\x01ab", b"\xff" * 40, b"\x3a\x04\x62\x02\x0a\x09", b"{" * 90]
)
def test_a_file_that_is_no_onnx_is_left_to_the_worker(tmp_path: Path, content: bytes) -> None:
    put(tmp_path, "m/model.toml", text=NAMED_WRONG)
    put(tmp_path, "m/1/model.onnx")
    (tmp_path / "m/1/model.onnx").write_bytes(content)
    assert len(scan(tmp_path)) == 1

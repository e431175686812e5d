"""The command line: what it prints, and with which code it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner, Result

from headway import __version__
from headway.cli.main import COMMANDS, main
from headway.cli.tiny_onnx import affine
from headway.registry.scan import FILES


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    assert run("init", tmp_path / "repository").exit_code == 0
    return tmp_path / "repository"


def test_help_lists_every_command() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert [name for name in COMMANDS if name not in result.output] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert result.output.startswith("Usage: ")


def test_an_unknown_command_is_a_usage_error() -> None:
    assert run("serv").exit_code == 2


def test_version_names_the_version_and_what_it_stands_on() -> None:
    result = run("version")
    assert result.exit_code == 0
    assert result.output.startswith(f"headway {__version__}\n")
    assert "onnxruntime" in result.output


def test_asking_for_the_version_does_not_load_numpy() -> None:
    code = (
        "import sys; from headway.cli.main import main; main(['version'], standalone_mode=False); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "numpy" not in loaded.splitlines()[-1].split()


def test_init_writes_what_check_finds_right(skeleton: Path) -> None:
    result = run("check", skeleton / "headway.toml")
    assert result.exit_code == 0
    assert [line.strip().split(",")[0] for line in result.output.splitlines()[1:]] == [
        "affine/1: onnx on cpu",
        "affine/2: onnx on cpu",
        "upper/1: python on cpu",
    ]


def test_init_never_overwrites(skeleton: Path) -> None:
    (skeleton / "headway.toml").write_text("mine")
    for name in ("models/affine/model.toml", "README.md"):
        (skeleton / name).unlink()
    result = run("init", skeleton)
    assert result.exit_code == 2
    assert "headway.toml: is there already; nothing was written" in result.stderr
    assert (skeleton / "headway.toml").read_text() == "mine"
    assert not (skeleton / "README.md").exists()


def test_init_writes_beside_files_of_other_names(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert run("init", tmp_path).exit_code == 0


def test_the_skeletons_onnx_files_are_right(skeleton: Path) -> None:
    rows = np.array([[1, 2, 3, 4], [0, 0, 0, 0]], dtype=np.float32)
    for version, expected in ((1, rows * 2 + 1), (2, rows * 3 - 1)):
        file = skeleton / f"models/affine/{version}/model.onnx"
        onnx.checker.check_model(str(file), full_check=True)
        session = onnxruntime.InferenceSession(str(file))
        np.testing.assert_array_equal(session.run(["y"], {"x": rows})[0], expected)


def test_an_onnx_file_written_by_hand_is_as_the_library_writes_it() -> None:
    model = onnx.load_from_string(affine(scale=0.5, offset=-300, width=1000))
    assert model.SerializeToString() == affine(scale=0.5, offset=-300, width=1000)


def test_check_tells_every_problem_of_both_the_file_and_the_repository(skeleton: Path) -> None:
    (skeleton / "headway.toml").write_text("[server]\nprot = 1\nmodels = 'models'\n")
    (skeleton / "models/affine/model.toml").write_text("instances = 0\n")
    (skeleton / "models/upper/1/model.py").unlink()
    result = run("check", skeleton / "headway.toml")
    assert result.exit_code == 2
    assert result.stderr.replace(f"{skeleton}/", "").splitlines() == [
        "headway.toml: server.prot: unknown setting; did you mean 'port'?",
        "models/affine/model.toml: instances: expected an integer >= 1, got 0",
        f"models/upper/1: expected {FILES}, found nothing",
    ]


def test_check_tells_what_only_starting_would_show(skeleton: Path) -> None:
    """The file itself being wrong hides none of it."""
    for wrong in ("", "port = -1\n"):
        server = f"[server]\nmodels = 'models'\nssl_certfile = 'c.pem'\nssl_keyfile = 'k.pem'\n{wrong}"
        (skeleton / "headway.toml").write_text(server)
        (skeleton / "models/affine/model.toml").write_text('[torch]\ndtype = "int8"\n[tolerances.z]\nabsolute = 1\n')
        result = run("check", skeleton / "headway.toml")
        assert result.exit_code == 2
        told = result.stderr.replace(f"{skeleton}/", "").splitlines()
        said = [
            "headway.toml: server.ssl_certfile: certificate c.pem cannot be read",
            "headway.toml: server.ssl_keyfile: private key k.pem cannot be read",
            "models/affine/model.toml: torch: expected no such table",
            "models/affine/model.toml: tolerances.z: version 1 has no output 'z'",
            "models/affine/model.toml: tolerances.z: version 2 has no output 'z'",
        ]
        assert len(told) == len(said) + bool(wrong), told
        assert all(line.startswith(start) for line, start in zip(told[-5:], said, strict=True)), told


def test_check_warns_once_of_workers_that_have_to_take_turns_and_of_a_gpu_that_is_not_there(
    skeleton: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.worker.devices.NVIDIA", (skeleton / "nothing",))
    manifest = skeleton / "models" / "affine" / "model.toml"
    manifest.write_text("instances = 500\n")
    (skeleton / "models" / "upper" / "model.toml").write_text('device = "cuda:3"\n')
    result = run("check", skeleton / "headway.toml")
    assert result.exit_code == 0
    crowded, absent = [line for line in result.output.splitlines() if line.startswith("warning: ")]
    assert "1000 workers that would keep 1000 cores busy share" in crowded and "affine/1's (instances = 500" in crowded
    assert "upper/1 will not load here: device 'cuda:3': this machine has no NVIDIA driver" in absent


def test_check_warns_of_a_cap_in_bytes_that_is_more_than_is_ever_held(skeleton: Path) -> None:
    (skeleton / "models" / "affine" / "model.toml").write_text("[batching]\nmax_batch_mb = 1025\n")
    (skeleton / "models" / "upper" / "model.toml").write_text("[batching]\nmax_batch_mb = 1024\n")
    result = run("check", skeleton / "headway.toml")
    assert result.exit_code == 0
    (warning,) = [line for line in result.output.splitlines() if "max_batch_mb" in line]
    assert "affine: batching.max_batch_mb = 1025 caps nothing" in warning
    assert "limits.max_queued_mb = 1024" in warning


def test_check_of_a_file_that_is_not_there_is_a_configuration_problem(tmp_path: Path) -> None:
    result = run("check", tmp_path / "absent.toml")
    assert result.exit_code == 2
    assert "absent.toml: cannot be read" in result.stderr


def test_show_prints_every_setting_with_its_source(skeleton: Path) -> None:
    result = run("check", skeleton / "headway.toml", "--show")
    assert result.exit_code == 0
    assert f"port = 8000  # {skeleton / 'headway.toml'}" in result.output
    assert f"max_batch_size = 64  # {skeleton / 'models/affine/model.toml'}" in result.output
    assert "request_timeout_s = 60  # default" in result.output


def test_show_says_that_the_command_line_named_the_models(skeleton: Path) -> None:
    models = skeleton / "models"
    result = run("check", skeleton / "headway.toml", "--models", models, "--show")
    assert f'models = "{models}"  # command line' in result.output
    assert f"port = 8000  # {skeleton / 'headway.toml'}" in result.output


def test_models_can_be_named_without_any_configuration(skeleton: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(skeleton.parent)
    result = run("check", "--models", "repository/models")
    assert result.exit_code == 0
    assert "affine/2" in result.output


def test_a_configuration_in_the_current_folder_is_found(skeleton: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(skeleton)
    assert run("check").output.startswith("headway.toml is right")


def test_serve_refuses_a_wrong_configuration_before_it_starts_anything(skeleton: Path) -> None:
    (skeleton / "headway.toml").write_text("[server]\nport = 'x'\n")
    result = run("serve", skeleton / "headway.toml")
    assert result.exit_code == 2
    assert "server.port: expected an integer" in result.stderr


def test_serve_refuses_a_port_that_cannot_be() -> None:
    assert run("serve", "--port", "70000").exit_code == 2


@pytest.mark.parametrize(("arguments", "code"), [(["version"], 0), (["check", "absent.toml"], 2), (["bogus"], 2)])
def test_the_exit_code_reaches_the_shell(tmp_path: Path, arguments: list[str], code: int) -> None:
    command = [str(Path(sys.executable).with_name("headway")), *arguments]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == code

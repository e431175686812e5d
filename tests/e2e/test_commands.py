"""Exit codes and words of `headway check` and of a server that cannot start as it is configured."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.e2e.server import HEADWAY
from tests.models import affine

pytestmark = pytest.mark.e2e


def headway(*arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run([str(HEADWAY), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def config(tmp_path: Path) -> Path:
    affine(tmp_path / "models" / "affine" / "1")
    (tmp_path / "headway.toml").write_text("[server]\nport = 0\n")
    return tmp_path / "headway.toml"


def test_a_right_configuration_checks_with_code_0_and_names_its_models(config: Path) -> None:
    code, said = headway("check", config)
    assert code == 0, said
    assert "affine/1" in said


@pytest.mark.parametrize("command", ["check", "serve"])
def test_an_unknown_setting_ends_with_code_2_its_place_and_the_nearest_known_name(config: Path, command: str) -> None:
    config.write_text("[server]\nport = 0\nshutdown_grace = 5\n")
    code, said = headway(command, config)
    assert code == 2, said
    assert str(config) in said
    assert "server.shutdown_grace" in said
    assert "shutdown_grace_s" in said
    assert "Traceback" not in said


def test_every_problem_is_told_at_once(config: Path) -> None:
    config.write_text("[server]\nprot = 1\n[limits]\nmax_parts = 'many'\n")
    manifest = config.parent / "models" / "affine" / "model.toml"
    manifest.write_text("[batching]\nmax_batch_sice = 3\n")
    code, said = headway("check", config)
    assert code == 2, said
    for word in ("prot", "port", "limits.max_parts", str(manifest), "batching.max_batch_sice", "max_batch_size"):
        assert word in said


def test_a_file_that_is_not_there_and_a_command_that_does_not_exist_end_with_code_2(tmp_path: Path) -> None:
    code, said = headway("serve", tmp_path / "missing.toml")
    assert (code, "missing.toml" in said) == (2, True), said
    assert headway("sevre")[0] == 2

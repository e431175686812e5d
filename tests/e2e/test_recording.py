"""A server that records; what it recorded, run through the scheduler again, decides the same."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.server import HEADWAY, put, served
from tests.models import affine

pytestmark = pytest.mark.e2e


def test_what_a_server_recorded_is_reproduced_by_replay(tmp_path: Path) -> None:
    affine(tmp_path / "models/affine/1", width=1)
    put(tmp_path, "headway.toml", "[recorder]\ndirectory = 'recordings'\n")
    with served("--port", "0", cwd=tmp_path) as server:
        server.until_serving()
        for number in range(20):
            assert server.infer("affine", "x", "FP32", [number], [1, 1])[0] == 200
        server.terminate(signal.SIGTERM)
        assert server.ended() == 0
    files = sorted((tmp_path / "recordings").iterdir())
    replayed = subprocess.run([HEADWAY, "replay", *files], capture_output=True, text=True)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "reproduced" in replayed.stdout


def test_a_folder_that_cannot_be_recorded_to_is_a_clear_error(tmp_path: Path) -> None:
    affine(tmp_path / "models/affine/1")
    put(tmp_path, "taken", "a file")
    put(tmp_path, "headway.toml", "[recorder]\ndirectory = 'taken'\n")
    with served("--port", "0", cwd=tmp_path) as server:
        assert server.ended() == 2
        assert "headway.toml: recorder.directory: expected a folder" in "\n".join(server.printed)

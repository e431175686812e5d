"""What a newcomer does first, with real processes: three ways to a model of one's own, and the default model."""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from headway.registry.minilm import prepare
from tests.e2e.served import HEADWAY, Served, put, served
from tests.models import affine

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]


def ask(server: Served, curl: str) -> tuple[int, object]:
    """Does what a printed curl command does."""
    words = [word for word in shlex.split(curl) if word not in ("curl", "-N")]
    body = words[words.index("-d") + 1] if "-d" in words else None
    path = re.sub(r"^http://[^/]+", "", words[0])
    return server.request("POST" if body else "GET", path, json.loads(body) if body else None)


def test_what_init_writes_serves_at_once_and_answers_as_its_readme_says(tmp_path: Path) -> None:
    subprocess.run([HEADWAY, "init", tmp_path / "mine"], check=True, capture_output=True)
    readme = (tmp_path / "mine" / "README.md").read_text()
    promised = re.findall(r"answer's data is `(.*?)`.*?\n```sh\n(curl .*?)\n```", readme, re.DOTALL)
    assert len(promised) == 3
    with served(tmp_path / "mine" / "headway.toml", "--port", "0") as server:
        server.until_serving()
        for answer, curl in promised:
            status, body = ask(server, curl)
            assert status == 200, body
            assert isinstance(body, dict)
            assert body["outputs"][0]["data"] == json.loads(answer)
        for curl in re.findall(r"^curl .*$", readme, re.MULTILINE):
            assert ask(server, curl)[0] == 200


def test_the_requests_that_the_server_prints_are_answered(tmp_path: Path) -> None:
    subprocess.run([HEADWAY, "init", tmp_path], check=True, capture_output=True)
    with served(tmp_path / "headway.toml", "--port", "0") as server:
        server.until_serving()
        server.wait_for("Try:")
        printed = [server.wait_for("  curl "), server.wait_for("  curl ")]
        assert printed[0].startswith(f"{server.address}/v2/models/affine/infer")
        assert printed[1] == f"{server.address}/metrics"
        assert [ask(server, curl)[0] for curl in printed] == [200, 200]


def test_an_onnx_file_in_a_folder_is_all_it_takes(tmp_path: Path) -> None:
    affine(tmp_path / "models/mine/1", scale=2, shift=1, width=2)
    with served("--models", tmp_path / "models", "--port", "0", cwd=tmp_path) as server:
        status, body = server.until_serving().infer("mine", "x", "FP32", [1, 2], [1, 2])
        assert (status, body["outputs"][0]["data"]) == (200, [3.0, 5.0])


def test_a_class_in_a_file_is_all_it_takes(tmp_path: Path) -> None:
    text = """
class Model:
    inputs = {"x": ("FP32", [-1, 2])}
    outputs = {"sum": ("FP32", [-1])}

    def execute(self, requests):
        return [{"sum": request["x"].sum(axis=1)} for request in requests]
"""
    put(tmp_path, "models/total/1/model.py", text)
    with served("--models", tmp_path / "models", "--port", "0", cwd=tmp_path) as server:
        status, body = server.until_serving().infer("total", "x", "FP32", [1, 2, 3, 4], [2, 2])
        assert (status, body["outputs"][0]["data"]) == (200, [3.0, 7.0])


def test_the_default_model_turns_text_into_a_vector_of_length_one() -> None:
    prepare(ROOT / ".headway" / "models")
    with served(ROOT / "headway.toml", "--port", "0") as server:
        server.until_serving()
        server.wait_for("Try:")
        status, body = ask(server, server.wait_for("  curl "))
        assert status == 200, body
        assert isinstance(body, dict)
        vector = body["data"][0]["embedding"]
        assert len(vector) == 384
        assert math.isclose(sum(number * number for number in vector), 1, rel_tol=1e-5)

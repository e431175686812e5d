"""What a newcomer does first, with real processes: three ways to a model of one's own, and the default model."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headway.registry.minilm import prepare
from tests.e2e.server import HEADWAY, Server, served

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]


OWN_MODEL = "\n## Your own model in five minutes\n"


def own_models() -> list[Any]:
    """The three ways that README.md shows, as parameters."""
    after = (ROOT / "README.md").read_text().split(OWN_MODEL)[1].split("\n## ")[0]
    sections = [section.split("\n", 1) for section in after.split("\n### ")[1:]]
    assert len(sections) == 3
    return [pytest.param(body, id=title) for title, body in sections]


def ask(server: Server, curl: str) -> tuple[int, object]:
    """Does what a printed curl command does."""
    words = [word for word in shlex.split(curl) if word not in ("curl", "-N")]
    body = words[words.index("-d") + 1] if "-d" in words else None
    path = re.sub(r"^http://[^/]+", "", words[0])
    return server.request("POST" if body else "GET", path, json.loads(body) if body else None)


def suggested(server: Server) -> list[str]:
    """The requests that it prints to be pasted; the metrics come last."""
    server.wait_for(f"curl {server.address}/metrics")
    return [line.removeprefix("  curl ") for line in server.printed if line.startswith("  curl ")]


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
        printed = suggested(server)
        assert len(printed) == 2
        assert printed[0].startswith(f"{server.address}/v2/models/affine/infer")
        assert printed[1] == f"{server.address}/metrics"
        assert [ask(server, curl)[0] for curl in printed] == [200, 200]


@pytest.mark.parametrize("section", own_models())
def test_a_model_of_ones_own_answers_as_the_readme_says(tmp_path: Path, section: str) -> None:
    blocks = re.findall(r"```(sh|json)\n(.*?)\n```", section, re.DOTALL)
    (_, made), *asked = blocks
    preparation, serve = made[: made.index("headway serve")], made[made.index("headway serve") :]
    paths = f"{HEADWAY.parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["sh", "-euc", preparation], cwd=tmp_path, env={**os.environ, "PATH": paths}, check=True)
    arguments = shlex.split(serve.replace("--port 8001", "--port 0"))[2:]
    with served(*arguments, cwd=tmp_path) as server:
        server.until_serving()
        assert len(asked) >= 2
        for (_, curl), (_, answer) in zip(asked[::2], asked[1::2], strict=True):
            assert ask(server, curl) == (200, json.loads(answer))


def test_the_default_model_turns_text_into_a_vector_of_length_one() -> None:
    prepare(ROOT / ".headway" / "models")
    with served(ROOT / "headway.toml", "--port", "0") as server:
        server.until_serving()
        status, body = ask(server, suggested(server)[0])
        assert status == 200, body
        assert isinstance(body, dict)
        vector = body["data"][0]["embedding"]
        assert len(vector) == 384
        assert math.isclose(sum(number * number for number in vector), 1, rel_tol=1e-5)

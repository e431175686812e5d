"""What the server says of itself and its models, and which version answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.client import ask, in_a_loop, infer_body, until
from tests.e2e.server import running
from tests.models import affine

pytestmark = pytest.mark.e2e

LOADS_NEVER = "raise RuntimeError('no such weights')\n"
CONFIG = "[workers]\nbackoff_s = 0.01\nmax_failures = 2\nretry_given_up_s = 0\n"


@in_a_loop
async def test_the_server_is_alive_while_all_of_its_models_are_down(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "1" / "model.py").write_text(LOADS_NEVER)
    with running(tmp_path, CONFIG) as server:

        async def given_up() -> bool:
            ready = await ask(server.address, "/ready")
            assert ready.status == 503
            return all(model["state"] == "failed" for model in ready.json["models"])

        await until(given_up, "both models have failed for good")
        assert server.workers() == []
        for path in ("/health", "/v2/health/live", "/v2", "/v1/models", "/metrics"):
            assert (await ask(server.address, path)).status == 200
        assert (await ask(server.address, "/v2/health/ready")).status == 503
        for model in (await ask(server.address, "/ready")).json["models"]:
            assert "no such weights" in model["reason"]
        reply = await ask(server.address, "/v2/models/first/infer", infer_body([("x", "FP32", [1], [1])]))
        assert (reply.status, reply.json["code"], reply.json["retryable"]) == (503, "model_failed", False)
        assert reply.headers["x-should-retry"] == "false" and "retry-after" not in reply.headers
        assert "no such weights" in reply.json["error"]
        assert not [line for line in server.printed if "SIGKILL" in line], "how we end it is not why it failed"


@in_a_loop
async def test_versions_serve_side_by_side_and_the_highest_is_the_default(tmp_path: Path) -> None:
    for version in (1, 2, 10):
        affine(tmp_path / "models" / "affine" / str(version), scale=1, shift=version, width=1)
    affine(tmp_path / "models" / "pinned" / "1", scale=1, shift=1, width=1)
    affine(tmp_path / "models" / "pinned" / "2", scale=1, shift=2, width=1)
    (tmp_path / "models" / "pinned" / "model.toml").write_text("default_version = 1\n")
    body = infer_body([("x", "FP32", [1, 1], [0])])
    with running(tmp_path) as server:
        for path, version in {
            "affine": 10,
            "affine/versions/1": 1,
            "affine/versions/2": 2,
            "affine/versions/10": 10,
            "pinned": 1,
            "pinned/versions/2": 2,
        }.items():
            reply = await ask(server.address, f"/v2/models/{path}/infer", body)
            assert reply.outputs["y"] == [version]
            assert reply.json["model_version"] == str(version)
        metadata = (await ask(server.address, "/v2/models/affine")).json
        assert metadata["versions"] == ["1", "2", "10"]

"""What a running server tells of its tenants, in `/metrics` and by `headway explain`."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway.gateway.keys import NewKey, new_key
from tests.e2e.client import ask, in_a_loop, infer_body
from tests.e2e.server import HEADWAY, Server, put, running

pytestmark = pytest.mark.e2e

ACME, UMBRELLA = new_key("acme1"), new_key("umbrella1")
TAKES_S = 0.02
WORK = f"""
import time

class Model:
    inputs = {{"x": ("FP32", [-1, 4])}}
    outputs = {{"y": ("FP32", [-1, 4])}}

    def execute(self, requests):
        time.sleep({TAKES_S})  # the work
        return [{{"y": request["x"]}} for request in requests]
"""
BODY = infer_body([("x", "FP32", [1, 4], [1, 2, 3, 4])])


def tenant(name: str, key: NewKey, more: str) -> str:
    entry = f'[[tenants.{name}.keys]]\nid = "{key.settings.id}"\nsha256 = "{key.settings.sha256}"\n'
    return f"[tenants.{name}]\n{more}\n{entry}"


CONFIG = (
    tenant("acme", ACME, "weight = 3\n[[tenants.acme.limits]]\nconcurrent = 500")
    + tenant("umbrella", UMBRELLA, "weight = 1")
    + "[models.work.batching]\nmax_batch_size = 1\n"
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    put(tmp_path, "models/work/1/model.py", WORK)
    with running(tmp_path, CONFIG) as server:
        yield server


async def metrics(server: Server) -> dict[tuple[str, str], float]:
    """By name and tenant."""
    text = (await ask(server.address, "/metrics")).body.decode()
    return {
        (sample.name, sample.labels["tenant"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "tenant" in sample.labels and family.name.startswith(("headway_tenant_", "headway_starving_"))
    }


def explain(server: Server, *arguments: str) -> str:
    command = [str(HEADWAY), "explain", "work", "--url", server.address, *arguments]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert asked.returncode == 0, asked.stderr
    return asked.stdout


@in_a_loop
async def test_what_each_tenant_received_and_was_owed_is_told_and_what_it_may(server: Server) -> None:
    async def send(key: NewKey, count: int) -> None:
        headers = {"authorization": f"Bearer {key.text}"}
        replies = await asyncio.gather(
            *(ask(server.address, "/v2/models/work/infer", BODY, headers) for _ in range(count))
        )
        assert {reply.status for reply in replies} == {200}

    await asyncio.gather(send(ACME, 40), send(UMBRELLA, 20))
    told = await metrics(server)
    for name, least in (("acme", 40 * TAKES_S), ("umbrella", 20 * TAKES_S), ("default", 0), ("other", 0)):
        service = told["headway_tenant_service_seconds_total", name]
        assert service >= least and bool(service) == bool(least)
        assert told["headway_starving_tenants", name] == told["headway_tenant_waiting_requests", name] == 0
    received, owed = (
        sum(told[f"headway_tenant_{what}_seconds_total", name] for name in ("acme", "umbrella"))
        for what in ("service", "owed")
    )
    assert owed == pytest.approx(received, rel=0.2), "but for the last batch's error"
    explained = {one["tenant"]: one for one in json.loads(explain(server, "--json"))["tenants"]}
    assert list(explained) == ["acme", "umbrella", "default", "other"]
    assert explained["acme"]["weight"] == 3
    assert explained["acme"]["received_s"] >= 40 * TAKES_S
    page = [line.strip() for line in explain(server).splitlines()]
    assert "acme may have: 500 open requests, has 0" in page
    assert any(line.startswith("acme") and line.split()[1] == "3" for line in page)

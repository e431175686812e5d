"""Keys, admin routes and reloading, at a server that runs."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

from headway.gateway.keys import NewKey, new_key
from tests.e2e.books import books
from tests.e2e.client import ask, in_a_loop, infer_body
from tests.e2e.server import HEADWAY, PATIENCE_S, Server, put, running, served
from tests.models import affine

pytestmark = pytest.mark.e2e

ACME, UMBRELLA, ADMIN = new_key("acme1"), new_key("umbrella1"), new_key("boss")
BODY = infer_body([("x", "FP32", [1, 4], [1, 2, 3, 4])])
SLOW = """
import time

class Model:
    inputs = {"x": ("FP32", [-1, 4])}
    outputs = {"y": ("FP32", [-1, 4])}

    def execute(self, requests):
        time.sleep(0.02)  # the work: long enough for forty of them to be under way during a reload
        return [{"y": request["x"]} for request in requests]
"""


def tenant(name: str, key: NewKey, more: str = "") -> str:
    entry = f'[[tenants.{name}.keys]]\nid = "{key.settings.id}"\nsha256 = "{key.settings.sha256}"\n'
    return f"[tenants.{name}]\n{more}\n{entry}"


CONFIG = tenant("acme", ACME, 'models = ["affine"]') + tenant("umbrella", UMBRELLA)
ADMIN_KEY = f'[[server.admin_keys]]\nid = "boss"\nsha256 = "{ADMIN.settings.sha256}"\n'


def bearer(key: NewKey) -> dict[str, str]:
    return {"authorization": f"Bearer {key.text}"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    affine(tmp_path / "models" / "affine" / "1")
    put(tmp_path, "models/slow/1/model.py", SLOW)
    put(tmp_path, "models/slow/model.toml", "[warm_up]\nenabled = false\n")
    return tmp_path


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("keyed")
    affine(root / "models" / "affine" / "1")
    affine(root / "models" / "other" / "1")
    with running(root, CONFIG) as server:
        yield server


def resident(server: Server) -> int:
    """Bytes."""
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


async def label_sets(server: Server) -> set[str]:
    """All lines of the page of metrics, without their values."""
    page = (await ask(server.address, "/metrics")).body.decode()
    return {line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")}


@in_a_loop
async def test_ten_thousand_unknown_keys_leave_no_memory_behind(keyed: Server) -> None:
    at = urlsplit(keyed.address)

    async def flood(first: int, count: int) -> None:
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        for number in range(first, first + count):
            key = b"hw_%d_%043d" % (number, number)
            writer.write(b"GET /v2/models/affine HTTP/1.1\r\nHost: a\r\nX-Api-Key: %b\r\n\r\n" % key)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 401 ")
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            assert key not in await reader.readexactly(length)
        writer.close()

    await flood(0, 1_000)
    await label_sets(keyed)  # whose own reply has a label, too
    before, labels = resident(keyed), await label_sets(keyed)
    await asyncio.gather(*(flood(1_000 * n, 1_000) for n in range(1, 11)))
    assert resident(keyed) - before < 2 << 20
    assert await label_sets(keyed) == labels
    assert (await ask(keyed.address, "/v2/models/affine/infer", BODY, bearer(ACME))).outputs["y"] == [3, 5, 7, 9]


@in_a_loop
async def test_where_there_are_keys_nothing_else_says_who_it_is(keyed: Server) -> None:
    """Not a header that names a tenant, nor one that names an address of this host, nor a key in the address."""
    spoofed = {"x-tenant": "umbrella", "x-forwarded-for": "127.0.0.1", "x-user": "umbrella"}
    assert (await ask(keyed.address, "/v2/models/other/infer", BODY, spoofed)).status == 401
    path = f"/v2/models/other/infer?x-api-key={UMBRELLA.text}&tenant=umbrella"
    assert (await ask(keyed.address, path, BODY)).status == 401
    assert (await ask(keyed.address, "/v2/models/other/infer", BODY, {**bearer(ACME), **spoofed})).status == 403
    before = await books(keyed.address)
    assert (await ask(keyed.address, "/v2/models/affine/infer", BODY, {**bearer(ACME), **spoofed})).status == 200
    after = await books(keyed.address)
    counted = {name: after.outcomes(tenant=name) - before.outcomes(tenant=name) for name in ("acme", "umbrella")}
    assert counted == {"acme": {"completed": 1}, "umbrella": {}}
    refused = [
        await ask(keyed.address, f"/v2/models/{model}/infer", BODY, bearer(ACME)) for model in ("other", "nowhere")
    ]
    told = {reply.json["error"].replace("nowhere", "other") for reply in refused}
    assert [reply.status for reply in refused] == [403, 403] and len(told) == 1, "what is another's does not show"


@in_a_loop
async def test_operators_routes_are_closed_to_what_a_proxy_passes_on_and_to_tenants_keys(keyed: Server) -> None:
    for headers in ({"x-forwarded-for": "127.0.0.1"}, {"forwarded": "for=127.0.0.1"}, {"via": "1.1 proxy"}):
        for method, path in (("GET", "/metrics"), ("POST", "/reload"), ("GET", "/v2/models/affine/explain")):
            reply = await ask(keyed.address, path, None, {**bearer(ACME), **headers}, method=method)
            assert (reply.status, reply.json["code"]) == (403, "forbidden"), (method, path, headers)


def test_tritons_own_client_gets_in_with_a_key_and_not_without(keyed: Server) -> None:
    entry = http.InferInput("x", [1, 4], "FP32")
    entry.set_data_from_numpy(np.ones((1, 4), np.float32))
    with http.InferenceServerClient(urlsplit(keyed.address).netloc) as client:
        assert client.is_server_live() and client.is_server_ready()
        result = client.infer("affine", [entry], headers=bearer(ACME))
        assert result.as_numpy("y").tolist() == [[3, 3, 3, 3]]
        index = client.get_model_repository_index(headers=bearer(ACME))
        assert [entry["name"] for entry in index] == ["affine"]
        for model, headers, status in (("affine", {}, "401"), ("other", bearer(ACME), "403")):
            with pytest.raises(InferenceServerException) as caught:
                client.infer(model, [entry], headers=headers)
            assert caught.value.status() == status
            assert ACME.text not in str(caught.value)


def test_a_key_that_is_made_is_shown_once_and_its_lines_let_it_in(root: Path) -> None:
    made = subprocess.run([str(HEADWAY), "keys", "new", "acme"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert made.returncode == 0, made.stderr
    key, _, lines = made.stdout.partition("\n")
    secret = key.split("_", 2)[2]
    assert secret not in lines
    assert set(tomllib.loads(lines)["tenants"]["acme"]["keys"][0]) == {"id", "sha256"}
    assert [path.name for path in root.iterdir()] == ["models"]
    with running(root, lines) as server:
        checked = subprocess.run(
            [str(HEADWAY), "check", "--show"], cwd=root, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert checked.returncode == 0 and secret not in checked.stdout

        async def both() -> list[int]:
            with_key = {"x-api-key": key}
            asked = [ask(server.address, "/v2/models/affine/infer", BODY, headers) for headers in (with_key, {})]
            return [(await reply).status for reply in asked]

        assert asyncio.run(both()) == [200, 401]


def test_metrics_and_reload_answer_at_an_address_of_their_own(root: Path) -> None:
    with running(root, f"[server]\nadmin_port = 0\n{ADMIN_KEY}{CONFIG}") as server:
        admin = server.wait_for("admin routes and /metrics on ").split()[-1]
        assert admin in server.wait_for('curl -H "Authorization: Bearer $HEADWAY_ADMIN_KEY"')

        async def scenario() -> None:
            assert (await ask(server.address, "/metrics", headers=bearer(ADMIN))).status == 403
            assert (await ask(admin, "/metrics")).status == 401
            page = await ask(admin, "/metrics", headers=bearer(ADMIN))
            assert page.status == 200 and b"headway_requests_received_total" in page.body
            assert (await ask(admin, "/health")).status == 200
            assert (await ask(admin, "/v2/models/affine/infer", BODY, bearer(ACME))).status == 404
            told = await ask(admin, "/reload", headers=bearer(ADMIN), method="POST")
            assert told.json == {"reloaded": True, "changed": [], "needs_restart": []}
            explained = await ask(admin, "/v2/models/affine/explain", headers=bearer(ADMIN))
            assert explained.json["model"] == "affine"

        asyncio.run(scenario())
        assert not any(ADMIN.text in line or ACME.text in line for line in server.printed)


@in_a_loop
async def test_a_reload_under_load_drops_nothing_and_holds_from_then_on(root: Path) -> None:
    with running(root, CONFIG + "[models.slow.batching]\nmax_batch_size = 1\n") as server:

        async def one(key: NewKey) -> int:
            return (await ask(server.address, "/v2/models/slow/infer", BODY, bearer(key))).status

        flying = [asyncio.create_task(one(UMBRELLA)) for _ in range(40)]
        await asyncio.sleep(0)
        assert (await ask(server.address, "/v2/models/slow/infer", BODY, bearer(ACME))).status == 403
        rules = "weight = 3\nlimits = [{ concurrent = 1000 }]"
        model = "[models.slow.batching]\nmax_batch_size = 2\nmax_queued_requests = 1000\n"
        put(
            root,
            "headway.toml",
            tenant("acme", ACME, "slo = { slow = 900 }") + model + f"[tenants.newcomer]\n{rules}\n",
        )
        assert not any(request.done() for request in flying[20:])
        told = await ask(server.address, "/reload", method="POST")
        assert told.status == 200, told
        assert told.json == {
            "reloaded": True,
            "changed": [
                "tenants.acme.models",
                "tenants.acme.slo.slow",
                "tenants.umbrella",
                "tenants.newcomer",
                "models.slow.batching.max_batch_size",
                "models.slow.batching.max_queued_requests",
            ],
            "needs_restart": [],
        }
        assert await one(UMBRELLA) == 401  # its keys are gone
        assert await one(ACME) == 200  # that was not its model before
        assert await asyncio.gather(*flying) == [200] * 40  # and whoever was let in is answered
        explained = await ask(server.address, "/v2/models/slow/explain")
        values = {value["name"]: (value["value"], value["origin"]) for value in explained.json["values"]}
        assert values["max_batch_size"] == (2, str(root / "headway.toml"))
        assert values["slo_ms"] == (900, "a tenant's slo_ms")
        metrics = (await ask(server.address, "/metrics")).body.decode()
        assert 'headway_tenant_latency_seconds_count{tenant="newcomer"} 0.0' in metrics
        assert 'headway_requests_in_slo_total{model="slow",tenant="umbrella",version="1"} 40.0' in metrics


@in_a_loop
async def test_a_bad_file_is_refused_whole_and_the_old_one_stays(root: Path) -> None:
    with running(root, CONFIG) as server:
        bad = tenant("acme", UMBRELLA) + "[tenants.umbrella]\nweight = -1\nwait = 3\n[server]\nport = 'x'\n"
        put(root, "headway.toml", bad)
        told = await ask(server.address, "/reload", method="POST")
        assert (told.status, told.json["code"], told.json["retryable"]) == (500, "config_error", False)
        assert [problem["place"] for problem in told.json["problems"]] == [
            "tenants.umbrella.weight",
            "tenants.umbrella.wait",
            "server.port",
        ]
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the configuration stays as it was")
        refused = [line for line in server.printed if "configuration not reloaded" in line]
        assert len(refused) == 6 and all(str(root / "headway.toml") in line for line in refused)
        for key, status in ((ACME, 200), (UMBRELLA, 200)):
            assert (await ask(server.address, "/v2/models/affine/infer", BODY, bearer(key))).status == status


@in_a_loop
async def test_a_hangup_reads_the_file_again_and_says_what_needs_a_restart(root: Path) -> None:
    with running(root, CONFIG) as server:
        affine(root / "models" / "newcomer" / "1")
        new = f"[server]\nport = 1\nrequest_timeout_s = 5\n{tenant('acme', UMBRELLA)}"
        put(root, "headway.toml", new)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("configuration reloaded; changed: tenants.acme.models, tenants.acme.keys, tenants.umbrella")
        server.wait_for("needs a restart: newcomer/1 is new in the repository")
        due = [line.partition("needs a restart: ")[2] for line in server.printed if "needs a restart: " in line]
        assert due == [
            "server.request_timeout_s",
            "newcomer/1 is new in the repository",
        ]
        for key, status in ((ACME, 401), (UMBRELLA, 200)):
            assert (await ask(server.address, "/v2/models/affine/infer", BODY, bearer(key))).status == status


def test_the_address_of_admin_routes_must_be_had(root: Path) -> None:
    with running(root, CONFIG) as server:
        taken = urlsplit(server.address).port
        put(root, "second.toml", f"[server]\nadmin_port = {taken}\n")
        with served(root / "second.toml", "--port", "0", cwd=root) as second:
            assert second.ended() == 2
            assert any("server.admin_port: cannot listen on" in line for line in second.printed), second.printed

"""A GPU that breaks under real workers, and is none: what runs on it, what runs elsewhere, and its way back."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from headway.config.settings import Settings, Workers
from headway.core.events import DeviceLost, DeviceRecovered, WorkerLost
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from tests.e2e.client import ask, in_a_loop, infer_body, until
from tests.e2e.gpu import MODEL, FakeGpu
from tests.e2e.server import put, running
from tests.e2e.test_failures_told import command
from tests.e2e.test_workers import Gateway, World, meet, small

pytestmark = pytest.mark.e2e

GPU = "cuda:0"
TRIED_OFTEN = Workers(backoff_s=0.01, max_backoff_s=0.02, max_failures=2)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu(tmp_path)
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    return fake


@pytest.fixture
def world(tmp_path: Path, gpu: FakeGpu) -> World:
    """one and two on the GPU, two with two workers; third elsewhere."""
    world = World(tmp_path)
    world.settings = Settings(workers=TRIED_OFTEN)
    world.python("one", MODEL, small(device=GPU))
    folder = world.python("two", MODEL, small(device=GPU, instances=2))
    os.mkfifo(folder / "gate")
    world.python("third", MODEL, small())
    return world


async def all_ready(gateway: Gateway) -> None:
    for name in ("one", "two", "third"):
        await gateway.until_state(name, "ready")
        assert await gateway.answer(gateway.submit(name, [[1]])) == [[[2]]]
    await gateway.until(lambda: gateway.watch.states.count("ready") == 4)


async def tried(gpu: FakeGpu, gateway: Gateway, times: int) -> None:
    """In vain."""
    told = len(told_lost(gateway))
    await gateway.until(lambda: len(told_lost(gateway)) >= told + times)


def told_lost(gateway: Gateway) -> list[DeviceLost]:
    return [event for event in gateway.watch.events if isinstance(event, DeviceLost)]


def numbers(gateway: Gateway) -> list[int]:
    """Of the workers there are."""
    return list(gateway.runtime._supervisor._workers)


def test_all_workers_of_a_lost_device_are_ended_and_none_is_started_until_a_probe_says_that_it_works(world, gpu):
    async def case(gateway: Gateway) -> None:
        await all_ready(gateway)
        held = gateway.submit("two", [[-2]])
        gate = await meet(world.root / "two" / "1" / "gate")
        gpu.breaks()
        broke = gateway.submit("one", [[-1]])
        for request, name in ((broke, "one"), (held, "two")):
            reply = await gateway.reply(request)
            assert reply.outcome is Outcome.NO_WORKER
            assert f"cuda:0, which {name}/1 runs on, is lost: worker 1 of one/1: exit code 87" in reply.detail
        gate.close()
        assert gateway.losses() == [Loss.DEVICE_LOST] * 3
        started = gateway.watch.states.count("starting")
        await tried(gpu, gateway, 3)
        assert gateway.watch.states.count("starting") == started, "nobody is started"
        assert numbers(gateway) == [4]
        assert await gateway.answer(gateway.submit("third", [[2]])) == [[[4]]]
        for name in ("one", "two"):
            status = gateway.status(name)
            assert (status.state, status.retry_after > 0) == ("failed", True)
            assert "cuda:0 is lost" in status.reason or "its device is lost" in status.reason
        assert told_lost(gateway)[-1].cause == "cuInit: the GPU has fallen off the bus"
        gpu.is_repaired()
        for name in ("one", "two"):
            await gateway.until_state(name, "ready")
            assert await gateway.answer(gateway.submit(name, [[3]])) == [[[6]]]
        assert [event for event in gateway.watch.events if isinstance(event, DeviceRecovered)] == [DeviceRecovered(GPU)]
        assert gateway.losses() == [Loss.DEVICE_LOST] * 3
        assert set(gpu.probes()[:-1]) == {"broken"} and gpu.probes()[-1] == "works"

    world.run(case)


def test_a_device_that_breaks_again_and_again_is_lost_each_time_and_nobody_is_given_up(world, gpu):
    async def case(gateway: Gateway) -> None:
        await all_ready(gateway)
        for times in range(1, 4):
            reply = await gateway.reply(gateway.submit("one", [[-1]]))
            assert reply.outcome is Outcome.NO_WORKER
            await gateway.until(lambda times=times: gateway.losses() == [Loss.DEVICE_LOST] * 3 * times)
            for name in ("one", "two"):
                await gateway.until_state(name, "ready")
            await gateway.until(lambda times=times: gateway.watch.states.count("ready") == 4 + 3 * times)
        assert await gateway.answer(gateway.submit("two", [[3]])) == [[[6]]]

    world.run(case)


def test_one_that_was_loading_each_time_has_not_failed_to_load(world, gpu, caplog):
    async def case(gateway: Gateway) -> None:
        await all_ready(gateway)
        slow = world.root / "two" / "1" / "slow"
        slow.touch()
        for times in range(1, 5):  # it would be given up after two failures
            await gateway.reply(gateway.submit("one", [[-1]]))
            await gateway.until(lambda times=times: gateway.losses() == [Loss.DEVICE_LOST] * 3 * times)
            await gateway.until_state("one", "ready")
        slow.with_name("once").touch()
        slow.unlink()
        await gateway.until_state("two", "ready")
        await gateway.until(lambda: len(gateway.pids("two")) == 2 and Loss.REFUSED in gateway.losses())
        assert await gateway.answer(gateway.submit("two", [[3]])) == [[[6]]]

    world.run(case)
    assert not any("given up" in record.message for record in caplog.records)


def test_a_worker_that_was_to_be_started_there_is_not(world, gpu, caplog):
    """It waits for its turn after a death of its own when the device is lost."""
    caplog.set_level("INFO", "headway.runtime")
    world.settings = Settings(workers=Workers(backoff_s=0.5, max_backoff_s=0.5))

    async def case(gateway: Gateway) -> None:
        await all_ready(gateway)
        pid = gateway.pids("two")[0]
        os.kill(pid, 9)
        await gateway.until(lambda: gateway.losses() == [Loss.KILLED])
        gpu.breaks()
        await gateway.reply(gateway.submit("one", [[-1]]))
        await tried(gpu, gateway, 1)
        assert numbers(gateway) == [4]
        gpu.is_repaired()
        for name in ("one", "two"):
            await gateway.until_state(name, "ready")
        await gateway.until(lambda: gateway.watch.states.count("ready") == 7)
        lost = [event.loss for event in gateway.watch.events if isinstance(event, WorkerLost)]
        assert lost == [Loss.KILLED] + [Loss.DEVICE_LOST] * 3

    world.run(case)
    assert not any("worker 5 of two/1: its process" in record.message for record in caplog.records)


def test_a_server_that_goes_down_meanwhile_leaves_nothing_behind(world, gpu):
    async def case(gateway: Gateway) -> None:
        await all_ready(gateway)
        gpu.breaks()
        await gateway.reply(gateway.submit("one", [[-1]]))
        await tried(gpu, gateway, 1)
        await gateway.runtime.close()
        assert not gateway.runtime._supervisor._tasks

    world.run(case)


def test_a_model_on_the_cpu_that_says_so_loses_no_device(world, gpu):
    async def case(gateway: Gateway) -> None:
        await all_ready(gateway)
        assert (await gateway.reply(gateway.submit("third", [[-1]], timeout_s=2))).outcome is not Outcome.COMPLETED
        assert set(gateway.losses()) == {Loss.DEVICE_LOST}
        assert told_lost(gateway) == []
        assert await gateway.answer(gateway.submit("one", [[3]])) == [[[6]]]
        assert gpu.probes() == []

    world.run(case)


@in_a_loop
async def test_clients_probes_and_operators_of_a_real_server_are_told_and_others_take_over(
    tmp_path: Path, gpu: FakeGpu
) -> None:
    for name, settings in (("one", ""), ("two", 'fallback = "third"\n'), ("third", "")):
        put(tmp_path, f"models/{name}/1/model.py", MODEL)
        device = "" if name == "third" else f'device = "{GPU}"\n'
        put(tmp_path, f"models/{name}/model.toml", f"cores = 1\n{device}{settings}")

    def body(value: float) -> dict[str, object]:
        return infer_body([("x", "FP32", [1, 1], [value])])

    with running(tmp_path, "[workers]\nbackoff_s = 0.01\nmax_backoff_s = 0.05\n") as server:
        gpu.breaks()
        broke = await ask(server.address, "/v2/models/one/infer", body(-1))
        assert (broke.status, broke.json["code"], broke.json["retryable"]) == (503, "no_worker", True)

        async def told() -> bool:
            states = (await ask(server.address, "/ready")).json["models"]
            return [model["state"] for model in states] == ["failed", "ready", "failed"]

        await until(told, "what runs on the GPU is not ready")
        await until(lambda: asyncio.to_thread(lambda: len(gpu.probes()) > 2), "it was tried")
        refused = await ask(server.address, "/v2/models/one/infer", body(1))
        assert (refused.status, refused.json["retryable"]) == (503, True)
        assert "its device is lost" in refused.json["error"]
        assert int(refused.headers["retry-after"]) >= 1
        instead = await ask(server.address, "/v2/models/two/infer", body(4))
        assert (instead.outputs["y"], instead.json["model_name"]) == ([8], "third")
        assert (await ask(server.address, "/health")).status == 200
        page = (await ask(server.address, "/metrics")).body.decode()
        for line in (
            'headway_device_lost{device="cuda:0"} 1.0',
            'headway_device_lost{device="cpu"} 0.0',
            'headway_device_losses_total{device="cuda:0"} 1.0',
            'headway_worker_losses_total{kind="device_lost",model="two",version="1"} 1.0',
        ):
            assert line in page
        assert "on cuda:0, which is lost, and tried until it works again" in await command(server, "explain", "one")
        assert len(server.workers()) == 1
        gpu.is_repaired()

        async def ready() -> bool:
            return (await ask(server.address, "/ready")).status == 200

        await until(ready, "all are ready again")
        assert (await ask(server.address, "/v2/models/one/infer", body(1))).outputs["y"] == [2]
        assert 'headway_device_lost{device="cuda:0"} 0.0' in (await ask(server.address, "/metrics")).body.decode()
    log = "\n".join(server.printed)
    assert "device cuda:0 is lost, and all workers on it: worker" in log
    assert "device cuda:0 does not work yet" in log
    assert "device cuda:0 works again" in log

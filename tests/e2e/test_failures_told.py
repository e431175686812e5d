"""What probes, operators and clients are told while workers hang or keep dying, by a real server."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headway.core.breaker import DEATHS
from tests.e2e.client import ask, in_a_loop, until
from tests.e2e.server import HEADWAY, Server, running
from tests.e2e.witness import EXITS, FAULTS, WITNESS, Pauses, Witness, pauses

pytestmark = pytest.mark.e2e

CONFIG = "[workers]\nbackoff_s = 0.01\n"


async def readiness(server: Server) -> tuple[int, dict[str, Any]]:
    """Of the server, and what it says of its one version."""
    reply = await ask(server.address, "/ready")
    (version,) = reply.json["models"]
    return reply.status, version


async def end_all(held: Pauses) -> None:
    while True:
        await (await held.begun()).end()


async def command(server: Server, *arguments: str) -> str:
    """What `headway` prints of this server."""
    process = await asyncio.create_subprocess_exec(
        str(HEADWAY), *arguments, "--url", server.address, stdout=subprocess.PIPE
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode()


@in_a_loop
async def test_a_server_whose_only_worker_does_not_answer_lives_and_is_not_ready_until_it_does(tmp_path: Path) -> None:
    """Nor is another that is started beside it, for as long as that loads."""
    async with pauses() as held, pauses() as restarts:
        witness = Witness(tmp_path, settings="hang_s = 4", options=f"restart = {restarts.port}")
        with running(tmp_path, CONFIG) as server:
            assert (await readiness(server))[0] == 200
            assert (await witness.ask(server.address, 1)).status == 200, "a size that was run before"
            waiting = asyncio.create_task(witness.ask(server.address, 7, hold=held.port))
            pause = await held.begun()
            loading = await restarts.begun()

            async def stalled() -> bool:
                return (await readiness(server))[1]["state"] == "stalled"

            await until(stalled, "the worker is suspected")
            status, version = await readiness(server)
            assert (status, version["ready"]) == (503, False)
            assert version["reason"] == "none of 1 workers has answered for far longer than was predicted"
            assert (await ask(server.address, "/health")).status == 200
            assert "suspected now, and given no work" in await command(server, "explain", "witness")
            await loading.end()

            async def ready() -> bool:
                return (await readiness(server))[0] == 200

            await until(ready, "the other one has loaded")
            assert (await witness.ask(server.address, 8)).outputs["sum"] == [8], "it answers"
            page = (await ask(server.address, "/metrics")).body.decode()
            assert 'headway_worker_reliefs_total{model="witness",version="1",what="started"} 1.0' in page
            assert "workers to stand in for those: 1 started" in await command(server, "explain", "witness")
            await pause.end()
            again = asyncio.create_task(end_all(held))  # on a busy machine it was given up by now, and runs again
            assert (await waiting).outputs["sum"] == [7]
            again.cancel()

            async def one() -> bool:
                return len(server.workers()) == 1

            await until(one, "one of the two has gone")
            assert (await witness.ask(server.address, 9)).outputs["sum"] == [9]


@in_a_loop
async def test_a_version_whose_workers_keep_dying_says_so_to_probes_clients_and_operators(tmp_path: Path) -> None:
    witness = Witness(tmp_path, code=WITNESS + FAULTS, settings=f"max_attempts = {DEATHS}")
    with running(tmp_path, CONFIG) as server:
        killer = await witness.ask(server.address, EXITS)
        assert (killer.status, killer.json["code"]) == (500, "poison_request")

        async def stalled() -> bool:
            return (await readiness(server))[1]["state"] == "stalled"

        await until(stalled, "its next worker is there, and the version refused all the same")
        refused = await witness.ask(server.address, 1)
        assert (refused.status, refused.json["code"], refused.json["retryable"]) == (503, "circuit_open", True)
        assert 0 < refused.json["retry_after_ms"] <= 10_000
        assert (await readiness(server))[0] == 503
        assert (await ask(server.address, "/health")).status == 200
        page = (await ask(server.address, "/metrics")).body.decode()
        for line in (
            'headway_circuit_open{model="witness",version="1"} 1.0',
            'headway_version_ready{model="witness",version="1"} 0.0',
            'headway_quarantined_contents{model="witness",version="1"} 1.0',
            f'headway_worker_losses_total{{kind="crashed",model="witness",version="1"}} {DEATHS}.0',
        ):
            assert line in page
        explained = await command(server, "explain", "witness")
        assert f"workers lost: {DEATHS} crashed" in explained
        assert f"refused: {DEATHS} workers died in a row" in explained
        listed = (await command(server, "quarantine", "list")).splitlines()
        assert listed[1].startswith("witness/1") and "exit code 9" in listed[1]
        assert await command(server, "quarantine", "lift", "witness", "1") == "1 let in again\n"
        assert await command(server, "quarantine", "list") == "nothing is in quarantine\n"

        async def served() -> bool:
            return (await witness.ask(server.address, 1)).status == 200

        await until(served, "a request is let in to try, and lives")
        assert (await readiness(server))[0] == 200

"""A server's recording of mixed traffic decides the same again; a changed one is found out."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.books import books
from tests.e2e.client import ask, in_a_loop, send, until
from tests.e2e.server import HEADWAY, running
from tests.e2e.witness import FAULTS, RAISES, REFUSES, RETURNS_AN_ERROR, WITNESS, Witness, pauses

pytestmark = pytest.mark.e2e

CONFIG = '[recorder]\ndirectory = "trace"\n'
EACH = 60
LINES_BEFORE_CALLS = 2
"""The header, and the snapshot."""


def replay(file: Path) -> tuple[int, str]:
    done = subprocess.run([str(HEADWAY), "replay", str(file)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@in_a_loop
async def record(root: Path) -> None:
    """Right answers, faults, expiries and clients that go away, while the worker is busy and after; then a drain."""
    witness = Witness(root, code=WITNESS + FAULTS, options="delay_ms = 1")
    with running(root, CONFIG) as server:
        async with pauses() as held, asyncio.TaskGroup() as clients:
            clients.create_task(witness.ask(server.address, 0, hold=held.port))
            pause = await held.begun()
            leaving = [await send(server.address, witness.path, witness.body(7)) for _ in range(EACH)]

            async def all_wait() -> bool:
                return (await books(server.address)).waiting(witness.name) == EACH

            await until(all_wait, "those that will leave wait for the busy worker")
            soon = {"x-request-timeout-ms": "20"}
            for number in range(1, EACH + 1):
                clients.create_task(
                    witness.ask(server.address, *[float(number)] * (1 + number % 7), priority=number % 3)
                )
                clients.create_task(ask(server.address, witness.path, witness.body(8), soon))
            for exchange in leaving:
                exchange.cut()

            async def gone() -> bool:
                """On a slow machine the model was seen to need the 20 ms that they have: refused as unmeetable."""
                outcomes = (await books(server.address)).outcomes()
                too_late = outcomes["expired"] + outcomes["refused"]
                return outcomes["cancelled"] == too_late == EACH

            await until(gone, "those that left and those that expired have their outcome")
            await pause.end()
        values = [1, 2, RETURNS_AN_ERROR, REFUSES] * (EACH // 4)
        replies = await asyncio.gather(*(witness.ask(server.address, value) for value in values))
        assert {reply.status for reply in replies} == {200, 400, 500}
        assert (await witness.ask(server.address, RAISES)).status == 500
        assert (await books(server.address)).outcomes().total() == 4 * EACH + 2


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("replay")
    record(root)
    (file,) = (root / "trace").iterdir()
    return file


def test_replay_reproduces_every_call_that_was_recorded(recording: Path) -> None:
    code, said = replay(recording)
    assert code == 0, said
    calls = len(recording.read_bytes().splitlines()) - LINES_BEFORE_CALLS
    assert f"reproduced; {calls} calls" in said


def test_replay_names_the_line_where_an_effect_was_changed(recording: Path, tmp_path: Path) -> None:
    lines = recording.read_text().splitlines(keepends=True)
    decided = [number for number, line in enumerate(lines) if number >= LINES_BEFORE_CALLS and json.loads(line)[2]]
    changed = decided[len(decided) // 2]
    call = json.loads(lines[changed])
    call[2].pop()
    tampered = tmp_path / recording.name
    tampered.write_text("".join([*lines[:changed], json.dumps(call) + "\n", *lines[changed + 1 :]]))
    code, said = replay(tampered)
    assert code == 1, said
    assert "DIFFERS" in said
    assert f"line {changed + 1}," in said

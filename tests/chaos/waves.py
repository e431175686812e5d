"""A wave of clients that lose patience, then one of clients that do not: is the second served as if the first had not
been?

    python -m tests.chaos.waves --clients 1000 --patience-ms 10

Judged from what clients were told and from the recording. How long the second wave took beside the same wave alone, on
the same server, is told and decides nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from headway.core.effects import DispatchBatch
from headway.core.events import RequestCancelled
from headway.core.ids import RequestId
from headway.runtime.codec import Call, decode_call
from tests.chaos.judge import Judgement
from tests.chaos.ledger import Ledger
from tests.chaos.load import Line, NoReply
from tests.chaos.models import TINY, ask_tiny
from tests.chaos.server import CONFIG, ChaosServer
from tests.e2e.server import put

DWELLS = 0.0015
"""Seconds that a row takes: a wave of 1,000 is some seconds of work for the one worker, and nobody's processor."""
SLOWLY = TINY.replace(
    "        return [", f"        time.sleep({DWELLS} * sum(request.rows for request in requests))\n        return ["
).replace("import numpy as np", "import time\n\nimport numpy as np")
SETTINGS = "cores = 0\nbatching.max_batch_size = 8\nwarm_up.rows = [1, 8]\n"
AT_ONCE = 50
"""Connections that are opened at a time; all are open before the first request is sent."""
LONGEST_S = 90
SHOWN = 20
"""Breaches."""
HEAD = 2
"""Lines of a recording before its first call."""


class Waves(NamedTuple):
    """Seconds, from the first request to the last reply."""

    alone: float
    after: float
    cancelled: int
    """Of the first wave, while they waited."""
    begun: int
    """Of the first wave, that were handed to the worker."""

    def __str__(self) -> str:
        ratio = self.after / self.alone
        return (
            f"first wave: {self.cancelled} went away while they waited, {self.begun} had been handed to the worker; "
            f"second wave: {self.after:.2f} s, alone {self.alone:.2f} s, ratio {ratio:.2f}"
        )


class WavesFailed(AssertionError):
    pass


class Wave:
    def __init__(self, address: str, ledger: Ledger, clients: int, rng: Random) -> None:
        self._ledger = ledger
        self._lines = [Line(address, LONGEST_S) for _ in range(clients)]
        self._asks = [ask_tiny(rng) for _ in range(clients)]

    async def run(self, patience_s: float = 0) -> float:
        """patience_s: after which each goes away; 0 = nobody does. Seconds."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def connect(line: Line) -> None:
            async with gate:
                await line.connect()

        await asyncio.gather(*map(connect, self._lines))
        began = time.monotonic()
        await asyncio.gather(*(self._one(number, patience_s) for number in range(len(self._lines))))
        return time.monotonic() - began

    async def _one(self, number: int, patience_s: float) -> None:
        line, ask = self._lines[number], self._asks[number]
        chain = self._ledger.begins(ask)
        sent = self._ledger.sends(chain, 0)
        try:
            async with asyncio.timeout(patience_s or None):
                _, status, _, told = await line.ask(sent.number, ask)
            self._ledger.hears(sent, status, told)
        except TimeoutError:
            sent.left = True
        except NoReply as error:
            self._ledger.strange.append(f"request {sent.number}: {error}")
        finally:
            chain.over = True
            line.cut()


async def waves(root: Path, clients: int, patience_s: float, bug: str = "") -> Waves:
    """Raises WavesFailed."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(4 * clients, 1024), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    put(root, "models/tiny/1/model.py", SLOWLY)
    put(root, "models/tiny/model.toml", SETTINGS)
    put(root, "headway.toml", CONFIG)
    server, ledger, rng = ChaosServer(root, bug), Ledger(), Random(1)
    alone = after = math.inf
    cut: list[str] = []
    try:
        await asyncio.to_thread(server.until_serving)
        try:
            alone = await Wave(server.address, ledger, clients, rng).run()
            await Wave(server.address, ledger, clients, rng).run(patience_s)
            after = await Wave(server.address, ledger, clients, rng).run()
        except OSError as error:  # a core that contradicts itself ends the server; the recording says how
            cut.append(f"a client could not connect: {error}")
        with contextlib.suppress(ProcessLookupError):
            server.terminate()
        code = await asyncio.to_thread(server.ended)
    finally:
        server.clean_up()
    judgement = Judgement(server.recording, {"tiny": 1})
    cancelled, begun, spent = from_recording(server.recording)
    breaches = [f"request {request} went away while it waited, and was run" for request in spent[:SHOWN]]
    breaches += [f"exit code {code}"] * (code != 0)
    breaches += [*cut, *judgement.breaches, *ledger.breaches()]
    if breaches:
        raise WavesFailed("\n".join(breaches[:SHOWN]))
    return Waves(alone, after, cancelled, begun)


def from_recording(file: Path) -> tuple[int, int, list[RequestId]]:
    """How many of those that were cancelled waited, how many had been handed to a worker; and those that were handed to
    one afterwards."""
    handed: dict[RequestId, None] = {}
    gone: dict[RequestId, bool] = {}
    spent: list[RequestId] = []
    for call in calls(file):
        for event in call.events:
            if isinstance(event, RequestCancelled):
                gone[event.request] = event.request in handed
        for effect in call.effects:
            if isinstance(effect, DispatchBatch):
                spent += [ref.request for ref in effect.parts if gone.get(ref.request) is False]
                handed.update(dict.fromkeys(ref.request for ref in effect.parts))
    waited = sum(not begun for begun in gone.values())
    return waited, len(gone) - waited, spent


def calls(file: Path) -> Iterator[Call]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines):
            if number >= HEAD:
                yield decode_call(line)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.waves", description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--patience-ms", type=float, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(asyncio.run(waves(Path(folder), given.clients, given.patience_ms / 1000)))
        except WavesFailed as failed:
            sys.exit(str(failed))


if __name__ == "__main__":
    main()

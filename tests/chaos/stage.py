"""A server under load, from its start to the last verdict; what is done to it in between is its user's matter."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tests.chaos import minilm
from tests.chaos.faults import Scene
from tests.chaos.judge import Judgement
from tests.chaos.ledger import Ledger
from tests.chaos.load import Client, Next
from tests.chaos.models import INSTANCES, OBEYING, TINY, Ask, ask_obeying, ask_tiny, put_model
from tests.chaos.patience import eventually
from tests.chaos.server import CONFIG, ChaosServer, left_behind
from tests.e2e.books import Books
from tests.e2e.client import ask

ROUND = 20
"""Requests to each model once the faults are over: the first try must be the last."""


@dataclass(frozen=True)
class Plan:
    """kills: of workers of the main model.  gap_s: between two faults, pause_s: between two requests of a client; on
    average.  patience_s: after which what was to happen is taken never to; it decides nothing else.
    bug: one of `tests.chaos.planted`."""

    seed: int
    kills: int = 10
    minilm: bool = False
    gap_s: float = 0.4
    clients: int = 6
    pause_s: float = 0.1
    patience_s: float = 90
    bug: str = ""

    def rng(self, whose: str) -> Random:
        return Random(f"{self.seed} {whose}")

    @property
    def main(self) -> str:
        return minilm.NAME if self.minilm else "tiny"

    @property
    def instances(self) -> dict[str, int]:
        return {self.main: INSTANCES, "obeying": INSTANCES}


class Stage:
    """breaches, judgement: once it is over."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self.root = root
        self.plan = plan
        self.ledger = Ledger()
        self.breaches: list[str] = []
        self.judgement: Judgement | None = None
        self.server: ChaosServer
        self.scene: Scene
        self._main: Next = ask_tiny
        self._over = asyncio.Event()
        self._clients: list[asyncio.Task[None]] = []

    def put_models(self) -> None:
        put_model(self.root, "obeying", OBEYING)
        if self.plan.minilm:
            minilm.put(self.root)
        else:
            put_model(self.root, "tiny", TINY)
        (self.root / "headway.toml").write_text(CONFIG + (minilm.SETTINGS if self.plan.minilm else ""))

    async def begin(self) -> None:
        """The server is started, and serves afterwards."""
        await asyncio.to_thread(self.server.until_serving)
        rng, patience_s = self.plan.rng("faults"), self.plan.patience_s
        self.scene = Scene(self.server, lambda: self._client("fault"), rng, self.plan.main, patience_s)
        if self.plan.minilm:
            encoder = minilm.Encoder(self.plan.rng("texts"))
            await self._each(encoder.about(number) for number in range(minilm.TEXTS))
            self._main = encoder.ask
        for number in range(self.plan.clients):
            client = self._client(f"client {number}")
            self._clients.append(asyncio.create_task(client.keep_asking(self._next, self.plan.pause_s, self._over)))

    def _client(self, name: str) -> Client:
        return Client(self.server.address, self.ledger, self.plan.rng(name), self.plan.patience_s)

    def _next(self, rng: Random) -> Ask:
        asked = self._main(rng) if rng.random() < 0.7 else ask_obeying(rng)
        kind = rng.random()
        if kind < 0.04:
            return replace(asked, kind="in a hurry", timeout_ms=rng.randint(1, 60))
        if kind < 0.08:
            return replace(asked, kind="goes away", leaves_after_s=rng.uniform(0, 0.02))
        return asked

    async def _each(self, asks: Iterable[Ask]) -> None:
        """One after the other; each must be answered at once."""
        client = self._client("each")
        for each in asks:
            chain = await client.see_through(each)
            if len(chain.tries) > 1:
                self.breaches.append(f"{each.kind} was to be tried again: {[sent.code for sent in chain.tries]}")
        await client.end()

    async def heal(self) -> None:
        """No more faults: all workers come back, and then everything completes."""
        await self.scene.over()

        async def ready() -> bool:
            page = Books((await ask(self.server.address, "/metrics")).body.decode(), Counter())
            everybody = [page.total("headway_workers", model=m, state="ready") for m in self.plan.instances]
            serving = (await ask(self.server.address, "/ready")).status == 200
            return serving and everybody == list(self.plan.instances.values())

        if not await eventually(ready, self.plan.patience_s):
            self.breaches.append(f"not all workers are back: there are {len(self.server.workers())} processes")
            return
        rng = self.plan.rng("round")
        await self._each(each(rng) for each in (self._main, ask_obeying) for _ in range(ROUND))

    async def end(self) -> None:
        """And the verdict."""
        self._over.set()
        await asyncio.gather(*self._clients)
        self.server.terminate(signal.SIGTERM)
        code = await asyncio.to_thread(self.server.ended)
        if code != 0:
            self.breaches.append(f"the server ended with exit code {code}")
        self.breaches += left_behind(self.server.temporary)
        self.breaches += [f"in the log: {line}" for line in self.server.printed if "Traceback" in line]
        self.judgement = Judgement(self.server.recording, self.plan.instances)
        self.judgement.compare(self.ledger.codes(), self.ledger.left())
        self.breaches += [*self.judgement.breaches, *self.ledger.breaches()]


@asynccontextmanager
async def staged(root: Path, plan: Plan) -> AsyncIterator[Stage]:
    stage = Stage(root, plan)
    stage.put_models()
    stage.server = ChaosServer(root, plan.bug)
    try:
        await stage.begin()
        yield stage
    finally:
        stage.server.clean_up()

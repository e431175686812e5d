"""What is done to a server: signals to its workers, requests that spoil whatever runs them, a disk that fills up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from tests.chaos.load import Client
from tests.chaos.models import OFFENCES, Ask, ask_slow, offend
from tests.chaos.patience import eventually
from tests.chaos.server import ChaosServer, worker_id

FULL_FOR_S = 1.0
STOPPED_FOR_S = (0.05, 2.5)
"""Half of them, which wake up before anybody has noticed or when they are suspected; the others when they are given up,
or after LONGEST_STOP_S if nothing was asked of them."""
LONGEST_STOP_S = 8
NO_PROGRESS = "no progress"
LOOK_S = 0.01


class NoVictim(Exception):
    """There is no worker where there should be."""


@dataclass
class Scene:
    """client: makes one, who sends one request.  main: the model whose workers are killed.
    done: faults by name.  running: those that are not over.  stopped: process ids.
    """

    server: ChaosServer
    client: Callable[[], Client]
    rng: Random
    main: str
    patience_s: float
    done: Counter[str] = field(default_factory=Counter)
    running: list[asyncio.Task[None]] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)

    async def victim(self, model: str = "") -> int:
        """The process id of a worker, which may load or run. Waits for one. Raises NoVictim."""

        async def some() -> list[int]:
            return self.server.workers_of(model)

        workers = await eventually(some, self.patience_s)
        if not workers:
            raise NoVictim(f"no worker of {model or 'any model'} has come for {self.patience_s:g} s")
        return self.rng.choice(workers)

    def meanwhile(self, what: Awaitable[object]) -> None:
        async def run() -> None:
            await what

        self.running.append(asyncio.create_task(run()))

    def send(self, ask: Ask) -> None:
        client = self.client()

        async def one() -> None:
            await client.see_through(ask)
            await client.end()

        self.meanwhile(one())

    async def over(self) -> None:
        await asyncio.gather(*self.running)
        self.running.clear()


Fault: TypeAlias = Callable[[Scene], Awaitable[None]]


async def kill(scene: Scene) -> None:
    _signal(await scene.victim(scene.main), signal.SIGKILL)


async def terminate(scene: Scene) -> None:
    """Of a worker only: one that runs leaves it to its server, one that has just begun dies of it."""
    _signal(await scene.victim(), signal.SIGTERM)


async def stop(scene: Scene) -> None:
    """It wakes up after a while, or just when it has been given up."""
    pid = await scene.victim()
    if pid in scene.stopped:
        return
    to_the_end = scene.rng.random() < 0.5
    lasts = LONGEST_STOP_S if to_the_end else scene.rng.uniform(*STOPPED_FOR_S)
    given_up, seen = f"worker {worker_id(pid)} of", len(scene.server.printed)
    scene.stopped.append(pid)
    _signal(pid, signal.SIGSTOP)

    async def wake_up() -> None:
        for _ in range(round(lasts / LOOK_S)):
            await asyncio.sleep(LOOK_S)
            if to_the_end and any(given_up in line and NO_PROGRESS in line for line in scene.server.printed[seen:]):
                break
        scene.stopped.remove(pid)
        _signal(pid, signal.SIGCONT)

    scene.meanwhile(wake_up())


async def fill_the_disk(scene: Scene) -> None:
    scene.server.disk.fill()

    async def free() -> None:
        await asyncio.sleep(FULL_FOR_S)
        scene.server.disk.free()

    scene.meanwhile(free())


async def slow_down(scene: Scene) -> None:
    scene.send(ask_slow(scene.rng))


def offence(kind: str) -> Fault:
    async def fault(scene: Scene) -> None:
        scene.send(offend(scene.rng, kind))

    return fault


KILL = "kill -9"
FAULTS: dict[str, Fault] = {
    KILL: kill,
    "SIGSTOP": stop,
    "SIGTERM": terminate,
    "slow": slow_down,
    "full log disk": fill_the_disk,
    **{kind: offence(kind) for kind in OFFENCES},
}


def schedule(rng: Random, kills: int) -> list[str]:
    """So many kills, about as many other faults, of each at least one, in random order."""
    others = [name for name in FAULTS if name != KILL]
    each = -(-kills // len(others))
    names = [KILL] * kills + others * each
    rng.shuffle(names)
    return names


async def do(scene: Scene, name: str) -> None:
    await FAULTS[name](scene)
    scene.done[name] += 1


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
        os.kill(pid, number)

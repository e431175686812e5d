"""Tenants at a server that runs: who asks, and what waits while a model is busy until the test says otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.e2e.client import Reply, ask, until
from tests.e2e.server import Server
from tests.e2e.stepper import Stepper
from tests.e2e.witness import Witness, pauses

HEADER = "x-tenant"
BY_HEADER = f'tenant_header = "{HEADER}"\n'


async def ask_as(server: Server, tenant: str, witness: Witness, *row: float, **more: Any) -> Reply:
    """more: parameters, of which `timeout_ms` goes into its header."""
    headers = {HEADER: tenant}
    if (timeout := more.pop("timeout_ms", None)) is not None:
        headers["x-request-timeout-ms"] = str(timeout)
    return await ask(server.address, witness.path, witness.body(*row, **more), headers)


async def until_waiting(server: Server, model: str, requests: int) -> None:
    """Of the page of metrics it is one line that counts: all of it, parsed, would take longer than the test."""
    sample = f'headway_queue_depth_requests{{model="{model}",version="1"}} {float(requests)}'.encode()

    async def so_many() -> bool:
        return sample in (await ask(server.address, "/metrics")).body.splitlines()

    await until(so_many, f"{requests} requests wait for {model}")


class Line:
    """Requests that come one after the other to a model that is busy, each when the one before it is seen to wait.

    The model streams, one sequence at a time: nothing is staged for it, so what waits is known to the last request.
    """

    def __init__(self, server: Server, stepper: Stepper) -> None:
        self.server = server
        self.stepper = stepper
        self.waiting = 0
        self.asked: dict[str, asyncio.Task[Reply]] = {}

    async def ask(self, tenant: str, name: str, **more: Any) -> Reply:
        path = f"/v2/models/{self.stepper.name}/generate"
        return await ask(self.server.address, path, {"name": name, "steps": 1, **more}, {HEADER: tenant})

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """The model is busy from beginning to end of the block, for a tenant of its own."""
        async with pauses() as held:
            occupier = asyncio.create_task(self.ask("holder", "holder", hold_at=0, hold=held.port))
            pause = await held.begun()
            yield
            await pause.end()
            assert (await occupier).status == 200

    async def wait(self, tenant: str, *names: str) -> None:
        """They find room."""
        for name in names:
            self.asked[name] = asyncio.create_task(self.ask(tenant, name))
            self.waiting += 1
            await until_waiting(self.server, self.stepper.name, self.waiting)

    async def push_in(self, tenant: str, name: str) -> str:
        """It finds room at the cost of one that waited, whose name is returned."""
        waiting = {task: name for name, task in self.asked.items() if not task.done()}
        task = self.asked[name] = asyncio.create_task(self.ask(tenant, name))
        done, _ = await asyncio.wait([task, *waiting], return_when=asyncio.FIRST_COMPLETED)
        assert not task.done(), task.result()
        (gone,) = [waiting[other] for other in done]
        return gone

    async def statuses(self, *names: str) -> list[int]:
        return [(await self.asked[name]).status for name in names]

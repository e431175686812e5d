"""Devices that are broken for all that use them: known from the first worker that says so, tried until they work again.

    works -> lost       a worker on it ended as on a lost device: all others there are ended too
    lost -> works       a probe succeeded: workers are started there again

A probe is a process of its own, as what touches a broken device may hang. The first comes after `backoff_s`, each
further one after twice as long, up to `max_backoff_s`; and so it goes on where a device is lost again soon after it had
recovered, so that its workers are not restarted for ever at the pace at which they load.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeAlias

from headway.config.settings import Workers
from headway.core.units import SECOND, Duration, Instant, seconds
from headway.runtime.clock import Clock

log = logging.getLogger("headway.runtime")

PROBE = (sys.executable, "-m", "headway.worker.device_probe")
"""The device's name is the last argument."""

ANSWERS_S = 30.0
"""How long a probe may take."""

STABLE: Duration = seconds(60)
"""A device that worked for so long is a new case."""

Probe: TypeAlias = Callable[[str], Awaitable[str]]
"""Device -> why it does not work; "" = it does."""


class Told(Protocol):
    """Who is told what becomes of devices."""

    def device_lost(self, device: str, cause: str, tried_in: Duration) -> None:
        """Also each time that it was tried in vain."""

    def device_recovered(self, device: str) -> None: ...


class _Trouble:
    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.tried_at: Instant = 0
        self.over = asyncio.Event()


class Devices:
    def __init__(
        self,
        settings: Workers,
        told: Told,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        probe: Probe | None = None,
    ) -> None:
        self._settings = settings
        self._told = told
        self._clock = clock
        self._spawn = spawn
        self._probe: Probe = probe or ask
        self._troubles: dict[str, _Trouble] = {}
        self._recovered: dict[str, tuple[Instant, float]] = {}
        """When each works again since, and how long its last probe was waited for."""
        self._watches: dict[str, asyncio.Task[None]] = {}

    def works(self, device: str) -> bool:
        return device not in self._troubles

    def tried_at(self, device: str) -> Instant:
        """When it is tried again; 0 where it works."""
        trouble = self._troubles.get(device)
        return 0 if trouble is None else trouble.tried_at

    def lost(self, device: str, cause: str) -> bool:
        """False: that is known already."""
        if device in self._troubles:
            return False
        self._troubles[device] = trouble = _Trouble(self._first_delay_s(device))
        log.error("device %s is lost, and all workers on it: %s", device, cause)
        self._tried_in(device, trouble, cause)
        self._watches[device] = self._spawn(self._watch(device, trouble))
        return True

    async def until_it_works(self, device: str) -> None:
        trouble = self._troubles.get(device)
        if trouble is not None:
            await trouble.over.wait()

    def stop(self) -> None:
        for watch in self._watches.values():
            watch.cancel()

    def _first_delay_s(self, device: str) -> float:
        since, delay_s = self._recovered.get(device, (0, 0.0))
        if not delay_s or self._clock() - since >= STABLE:
            return self._settings.backoff_s
        return self._longer(delay_s)

    def _longer(self, delay_s: float) -> float:
        return min(2 * delay_s, self._settings.max_backoff_s)

    def _tried_in(self, device: str, trouble: _Trouble, cause: str) -> None:
        delay = int(trouble.delay_s * SECOND)
        trouble.tried_at = self._clock() + delay
        self._told.device_lost(device, cause, delay)

    async def _watch(self, device: str, trouble: _Trouble) -> None:
        await asyncio.sleep(trouble.delay_s)
        while problem := await self._probe(device):
            trouble.delay_s = self._longer(trouble.delay_s)
            log.warning("device %s does not work yet, it is tried again in %g s: %s", device, trouble.delay_s, problem)
            self._tried_in(device, trouble, problem)
            await asyncio.sleep(trouble.delay_s)
        del self._troubles[device], self._watches[device]
        self._recovered[device] = (self._clock(), trouble.delay_s)
        log.warning("device %s works again", device)
        self._told.device_recovered(device)
        trouble.over.set()


async def ask(device: str) -> str:
    """Runs the probe."""
    try:
        process = await asyncio.create_subprocess_exec(
            *PROBE,
            device,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return f"it could not be tried: {error}"
    try:
        said, _ = await asyncio.wait_for(process.communicate(), ANSWERS_S)
    except TimeoutError:
        return f"nothing came of it within {ANSWERS_S:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return ""
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"the process that tried it ended with {process.returncode}"

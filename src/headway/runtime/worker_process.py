"""One incarnation of a worker: a process and its channel, from the start to the exit."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from headway.core.ids import VersionId, WorkerId
from headway.core.losses import Loss
from headway.core.units import Duration, Instant
from headway.registry.spec import VersionSpec
from headway.runtime.channel import CLOSED, Channel
from headway.runtime.clock import Clock
from headway.runtime.losses import (
    HUNG_UP,
    LOAD_FAILED,
    NOT_STARTED,
    SIGNS,
    TOO_SLOW,
    VIOLATION,
    End,
    end_of,
    end_of_progress,
    while_loading,
)
from headway.runtime.oom import OutOfMemoryKills
from headway.runtime.stacks import Stacks
from headway.wire.exits import ASK_FOR_STACKS
from headway.wire.frames import ProtocolViolation
from headway.wire.messages import FromWorker, Hello, Load, LoadFailed, Ready, Stop

log = logging.getLogger("headway.runtime")

TOKEN_VARIABLE = "HEADWAY_WORKER_TOKEN"

EXIT_FOLLOWS_S = 0.25
"""A process that dies closes its channel first. Its exit is told this much later at most, and says more."""

STACKS_TAKE_S = 0.2
"""How long one that hangs has to write down what it is doing."""


class State(Enum):
    STARTING = "starting"
    READY = "ready"
    STOPPING = "draining"
    STOPPED = "stopped"
    LOST = "lost"


LEGAL: dict[State, tuple[State, ...]] = {
    State.STARTING: (State.READY, State.STOPPING, State.LOST),
    State.READY: (State.STOPPING, State.LOST),
    State.STOPPING: (State.STOPPED, State.LOST),
    State.STOPPED: (),
    State.LOST: (),  # a restarted worker is a new worker
}


class Owner(Protocol):
    """Who is told what becomes of it."""

    def worker_changed(self, worker: WorkerProcess) -> None:
        """Its state is another one now. Called once per state, synchronously."""

    def worker_message(self, worker: WorkerProcess, message: FromWorker, data: memoryview) -> None:
        """Anything after Ready. May raise ProtocolViolation: the worker is lost then."""


class WorkerProcess:
    """ready: what it reported (None before).  cause, loss: why it was lost, and how.  final: a successor
    would be lost for the same cause.  start_duration: from spawn to ready.
    over: its state is a last one.
    """

    def __init__(
        self,
        worker: WorkerId,
        spec: VersionSpec,
        threads: int,
        owner: Owner,
        clock: Clock,
        kills: OutOfMemoryKills,
    ) -> None:
        self.id = worker
        self.spec = spec
        self.version = VersionId(spec.model, spec.version)
        self.token = secrets.token_hex(16)
        self.state = State.STARTING
        self.over = False
        self.cause = ""
        self.loss = Loss.KILLED
        self.final = False
        self.ready: Ready | None = None
        self.ready_at: Instant = 0
        self.start_duration: Duration = 0
        self.channel: Channel | None = None
        self._threads = threads
        self._owner = owner
        self._clock = clock
        self._kills = kills
        self._stacks: Stacks | None = None
        self._spawned_at: Instant = 0
        self._process: asyncio.subprocess.Process | None = None
        self._exit: End | None = None
        self._killed = False
        """By us: how it ended then says nothing of why."""

    @property
    def name(self) -> str:
        return f"worker {self.id} of {self.version}"

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    # -- from start to exit --------------------------------------------------------------------

    async def run(self, address: str, start_timeout_s: float) -> None:
        """Returns when the process is gone (or could not be started)."""
        self._spawned_at = self._clock()
        self._kills.looks()
        try:
            self._stacks = Stacks()
            self._process = await self._spawn(address, self._stacks.fd)
        except OSError as error:
            self._close_stacks()
            self.lose(f"{NOT_STARTED}: {error}", SIGNS[NOT_STARTED])
            return
        if self.state is not State.STARTING:
            self._kill()  # stopped or lost while it was being spawned
        timer = asyncio.get_running_loop().call_later(start_timeout_s, self._start_timed_out, start_timeout_s)
        code = await self._process.wait()
        timer.cancel()
        self._exited(code)

    async def _spawn(self, address: str, stacks: int) -> asyncio.subprocess.Process:
        environment = {**os.environ, TOKEN_VARIABLE: self.token}
        command = [sys.executable, "-m", "headway.worker", "--connect", address, "--worker", str(self.id)]
        command += ["--threads", str(self._threads), "--stacks", str(stacks)]
        # A session of its own: Ctrl-C in a terminal reaches the server alone, which then drains.
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=2,
            env=environment,
            start_new_session=True,
            pass_fds=(stacks,),
        )

    def stop(self, grace_s: float) -> None:
        """Asks it to finish what it runs and exit; after grace_s it is killed. One that loads is killed at once."""
        if self.over:
            return
        if self.state is not State.STOPPING:
            was_ready = self.state is State.READY
            self._become(State.STOPPING)
            if was_ready and self.channel is not None:
                self.channel.send_control(Stop(self.id))
            else:
                self._kill()  # it would read no message, and workers leave SIGTERM to their parent
        asyncio.get_running_loop().call_later(grace_s, self._kill)

    def retire(self, has_work: Callable[[WorkerId], bool], grace_s: float) -> None:
        """Asks it to finish all that it was given and exit; grace_s after it has no more work it is killed. One that
        hangs meanwhile is given up like any other."""
        if self.state is not State.READY or self.channel is None:
            self.stop(grace_s)
            return
        self._become(State.STOPPING)
        self.channel.send(Stop(self.id))  # in the lane of the batches, behind the last
        self._kill_once_idle(has_work, grace_s)

    def _kill_once_idle(self, has_work: Callable[[WorkerId], bool], grace_s: float) -> None:
        loop = asyncio.get_running_loop()
        if has_work(self.id):
            loop.call_later(grace_s, self._kill_once_idle, has_work, grace_s)
        else:
            loop.call_later(grace_s, self._kill)

    def stopped_before_start(self) -> None:
        """For one whose process was never spawned."""
        if self.over:
            return  # lost with its device meanwhile
        if self.state is State.STARTING:
            self._become(State.STOPPING)
        self._become(State.STOPPED)

    def lose(self, cause: str, loss: Loss) -> None:
        """Whatever it ran is unanswered, and it is killed. The first cause counts."""
        if self._is_lost(cause, loss):
            self._kill()

    def give_up(self, cause: str) -> None:
        """It hangs: it is lost at once, and killed when it has had time to write down what it is doing. One that was
        stopped writes nothing, and is killed all the same: none of them comes back."""
        if self._is_lost(*end_of_progress(self.pid, cause)):
            self._signal(signal.Signals(ASK_FOR_STACKS))
            asyncio.get_running_loop().call_later(STACKS_TAKE_S, self._kill)

    def _is_lost(self, cause: str, loss: Loss) -> bool:
        if self.over:
            return False
        self.cause, self.loss = cause, loss
        self._become(State.LOST)
        self._hang_up()  # nothing that it says from now on is heard
        return True

    def _ended(self, end: End) -> None:
        self.lose(*(end if self.ready is not None else while_loading(end)))

    def _exited(self, code: int) -> None:
        if self.over:
            log.info("%s: its process has ended%s", self.name, "" if self._killed else f", {self._end(code).cause}")
        elif self.state is State.STOPPING and (code == 0 or self.ready is None):
            self._become(State.STOPPED)
            self._hang_up()
        else:
            self._ended(self._end(code))
        self._tell_stacks()

    def _end(self, code: int) -> End:
        """Of a process that has exited. Asked for twice, as its channel closes too; the kernel's count counts once."""
        if self._exit is None:
            starved = code == -signal.SIGKILL and not self._killed and self._kills.one_more()
            self._exit = end_of(code, starved)
        return self._exit

    def _tell_stacks(self) -> None:
        if self._stacks is not None and (text := self._stacks.read()):
            log.error("%s: what it was doing: %s", self.name, text)
        self._close_stacks()

    def _close_stacks(self) -> None:
        if self._stacks is not None:
            self._stacks.close()

    def _start_timed_out(self, timeout_s: float) -> None:
        if self.state is State.STARTING:
            self.lose(f"not ready within {timeout_s:g} s", SIGNS[TOO_SLOW])

    def _become(self, state: State) -> None:
        if state not in LEGAL[self.state]:
            raise RuntimeError(f"{self.name}: from {self.state.value} to {state.value}")
        self.state = state
        self.over = not LEGAL[state]
        self._owner.worker_changed(self)

    def _kill(self) -> None:
        if self._signal(signal.SIGKILL):
            self._killed = True

    def _signal(self, number: signal.Signals) -> bool:
        """False: there is no process (any more)."""
        process = self._process
        if process is None or process.returncode is not None:
            return False
        try:
            process.send_signal(number)
        except ProcessLookupError:
            return False  # it exited, and the loop is about to hear of it
        return True

    def _hang_up(self) -> None:
        if self.channel is not None:
            self.channel.close()

    # -- the channel's peer --------------------------------------------------------------------

    def attach(self, channel: Channel, hello: Hello) -> None:
        """The process at the other end has proved to be this one."""
        self.channel = channel
        channel.peer = self
        spec = self.spec
        settings = msgspec.to_builtins(spec.settings)
        channel.send_control(
            Load(
                worker=self.id,
                model=spec.model,
                version=spec.version,
                path=spec.path,
                executor=spec.executor,
                device=spec.settings.device,
                threads=self._threads,
                settings=settings,
            )
        )
        log.debug("%s: connected, process %d", self.name, hello.pid)

    def connected(self, channel: Channel) -> None:
        raise RuntimeError(f"{self.name}: a channel connects before it is known whose it is")

    def received(self, channel: Channel, message: FromWorker, data: memoryview) -> None:
        if message.worker != self.id:
            raise ProtocolViolation(f"message of worker {message.worker} on the channel of worker {self.id}")
        if self.over:
            return  # lost meanwhile, with messages still in the buffer
        kind = type(message)
        if kind is Ready or kind is LoadFailed or kind is Hello:
            self._started(message)
        elif self.ready is None:
            raise ProtocolViolation(f"{kind.__name__} before Ready")
        else:
            self._owner.worker_message(self, message, data)

    def _started(self, message: FromWorker) -> None:
        if isinstance(message, LoadFailed):
            self.final = message.final
            self.lose(f"{LOAD_FAILED}: {message.detail}", SIGNS[LOAD_FAILED])
        elif isinstance(message, Ready) and self.ready is None:
            self.ready = message
            self.ready_at = self._clock()
            self.start_duration = self.ready_at - self._spawned_at
            if self.state is State.STARTING:
                self._become(State.READY)
        else:
            raise ProtocolViolation(f"{type(message).__name__} out of turn")

    def closed(self, channel: Channel, cause: str) -> None:
        if self.state is State.STOPPING and cause == CLOSED:
            return  # as it should; its exit code says how it went
        code = self._exit_by_now()
        if code is not None:
            self._ended(self._end(code))
        elif cause != CLOSED:
            self._ended(End(cause, SIGNS[VIOLATION]))
        else:
            asyncio.get_running_loop().call_later(EXIT_FOLLOWS_S, self._hung_up)

    def _hung_up(self) -> None:
        if not self.over:
            code = self._exit_by_now()
            self._ended(End(HUNG_UP, SIGNS[HUNG_UP]) if code is None else self._end(code))

    def _exit_by_now(self) -> int | None:
        """How it exited, if the kernel knows already: says more than that the channel closed."""
        if self._process is None:
            return None
        try:
            status = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        if status is None:
            return None
        return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status

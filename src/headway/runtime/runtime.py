"""The live driver of the core: takes messages from the gateway, runs workers, gives replies back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

from headway.config.settings import Settings
from headway.core.effects import Effect
from headway.core.events import (
    DrainStarted,
    Event,
    ReplyWritten,
    RequestArrived,
    RequestCancelled,
    RequestSatisfied,
    ServerConfigured,
    VersionConfigured,
)
from headway.core.ids import RequestId, VersionId
from headway.core.outcomes import Outcome
from headway.core.policy import ServerPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import Instant
from headway.registry.placement import available_cores, lay_out
from headway.registry.spec import VersionSpec
from headway.runtime import policies
from headway.runtime.clock import Clock, monotonic
from headway.runtime.crew import LiveCrew
from headway.runtime.effects import EffectRunner
from headway.runtime.held import Held, prefix_of, unsendable
from headway.runtime.mailbox import Core, Fatal, Mailbox, crash
from headway.runtime.memory import MemoryGauge
from headway.runtime.observer import NullObserver, Observer
from headway.runtime.quarantine import Quarantine
from headway.runtime.recorder import Recorder
from headway.runtime.supervisor import Supervisor
from headway.wire.messages import Cancel, Enough, Quarantined, Submit, ToGateway, ToRuntime, Written
from headway.wire.safety import SafetyReport

log = logging.getLogger("headway.runtime")

Deliver: TypeAlias = Callable[[ToGateway], None]

IDLE_CLOSE_GRACE_S = 5.0
"""At close, for an idle worker to unload its model and exit."""

BUSY_CLOSE_GRACE_S = 1.0
"""The same where something still runs: drain() came before, and the operator's grace for it is over."""


class Runtime:
    """send() and deliver carry all that gateway and runtime tell each other; both are called on the loop.

    deliver: is given exactly one Reply for each Submit; must not raise.
    fatal: called when the core or the driver is found to be wrong; the default leaves the loop with exit code 1.
    """

    def __init__(
        self,
        settings: Settings,
        versions: Sequence[VersionSpec],
        deliver: Deliver,
        observer: Observer | None = None,
        *,
        core: Core | None = None,
        clock: Clock = monotonic,
        fatal: Fatal = crash,
    ) -> None:
        self._versions = {VersionId(spec.model, spec.version): spec for spec in versions}
        self._ids = {(version.model, version.version): version for version in self._versions}
        """Made once: a named tuple takes longer to make than to look up."""
        layout = lay_out(versions, available_cores(settings.server.threads))
        self._places = dict(zip(self._versions, layout.places, strict=True))
        self._devices = layout.devices
        self._policy = self._server_policy(settings)
        self._core: Core = core if core is not None else Scheduler()
        self._clock = clock
        self._fatal = fatal
        self._observer: Observer = observer if observer is not None else NullObserver()
        self._recorder = Recorder(settings.recorder)
        self._mailbox = Mailbox(
            self._core, asyncio.get_running_loop(), clock, self._carry_out, self._recorder.raised, fatal
        )
        self._held: dict[RequestId, Held] = {}
        self._memory = MemoryGauge(self._policy.max_queued_bytes, self._mailbox.post)
        self._crew = LiveCrew(
            self._versions,
            self._places,
            self._mailbox.post,
            deliver,
            self._observer,
            clock,
            self._slos(settings),
        )
        self._supervisor = Supervisor(settings.workers, self._crew, clock)
        self._quarantine = Quarantine(self._mailbox.post, self._crew.quarantine)
        self._effects = EffectRunner(
            self._held,
            self._supervisor.channel,
            deliver,
            self._observer,
            self._memory,
            self._mailbox.post,
            self._supervisor,
            self._quarantine,
        )
        self._crew.join(self._supervisor, self._effects)
        self._deliver = deliver
        self._idle: asyncio.Future[None] | None = None
        self._closed = False

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the workers' socket and starts all workers; versions report by VersionStatus when they are ready."""
        self._recorder.start(self._core.snapshot())
        await self._supervisor.start()
        self._mailbox.post(ServerConfigured(self._policy))
        for version in self._versions:
            self._mailbox.post(VersionConfigured(version, self._crew.policy(version)))
        for version, spec in self._versions.items():
            self._supervisor.add(spec, self._places[version].threads, self._fatal)

    def configure(self, settings: Settings, versions: Sequence[VersionSpec]) -> None:
        """New rules of the server and of its versions, which stay the same; the core is told of them in one call."""
        self._versions.update({VersionId(spec.model, spec.version): spec for spec in versions})
        self._policy = self._server_policy(settings)
        self._mailbox.post(ServerConfigured(self._policy))
        self._crew.aim(self._slos(settings))

    def _server_policy(self, settings: Settings) -> ServerPolicy:
        own = {spec.model: spec.settings.slo_ms for spec in self._versions.values()}
        return policies.server_policy(settings, self._devices, own)

    def _slos(self, settings: Settings) -> dict[VersionId, float]:
        return {
            version: policies.tightest_slo_ms(settings, spec.model, spec.settings.slo_ms)
            for version, spec in self._versions.items()
        }

    async def drain(self, grace_s: float) -> bool:
        """Refuses what is new and waits for what is in flight. False: something was left when the grace was over."""
        self._crew.drain()
        self._supervisor.draining = True
        self._mailbox.post(DrainStarted())
        self._idle = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait_for(self._idle, grace_s)
        except TimeoutError:
            log.warning("%d requests were still in flight after %.1f s", len(self._held), grace_s)
            return False
        return True

    async def close(self) -> None:
        """Stops the workers and answers whatever is left. Leaves no process, socket, thread or timer behind."""
        if self._closed:
            return
        await self._supervisor.stop(BUSY_CLOSE_GRACE_S if self._held else IDLE_CLOSE_GRACE_S)
        self._mailbox.close()
        self._closed = True
        now = self._clock()
        for held in list(self._held.values()):
            self._effects.resolve(held, Outcome.DRAINING, "the server has stopped", 0, now)
        self._recorder.close()

    def abandon(self) -> None:
        """The process is about to end without `close`: takes away what would outlive it. Workers end by themselves."""
        self._supervisor.abandon()

    @property
    def in_flight(self) -> int:
        """Requests without an outcome."""
        return len(self._held)

    @property
    def recorder(self) -> Recorder:
        """To look at: whether it records, what it dropped, whether it failed."""
        return self._recorder

    @property
    def safety(self) -> Mapping[VersionId, SafetyReport]:
        """What batching does to the answers of each version that has loaded."""
        return self._crew.safety

    def quarantined(self) -> list[Quarantined]:
        """Contents that are refused, by version and the oldest first."""
        return self._quarantine.listed(self._clock())

    def lift(self, version: VersionId, content: int = 0) -> int:
        """Lets requests of this content in again; 0 = of all that is in quarantine there. How many contents it was."""
        return self._quarantine.lift(version, content, self._clock())

    @property
    def core(self) -> Core:
        """To look at (depths for metrics and readiness), not to drive."""
        return self._core

    # -- from the gateway ----------------------------------------------------------------------

    def send(self, message: ToRuntime) -> None:
        """Raises ValueError for a Submit whose request id is in use."""
        kind = type(message)  # that of a Struct is quicker to compare than to ask
        if kind is Submit:
            self._submit(cast(Submit, message))
        elif kind is Written:
            self._written(cast(Written, message))
        elif isinstance(message, Enough):
            if message.request in self._held:
                self._mailbox.post(RequestSatisfied(message.request))
        elif isinstance(message, Cancel):
            self._effects.gone(message.request)
            if message.request in self._held:
                self._mailbox.post(RequestCancelled(message.request))

    def _submit(self, submit: Submit) -> None:
        request = submit.request
        if request in self._held:
            raise ValueError(f"request id {request} is in use")
        held = self._held[request] = Held(submit, self._clock())
        if self._closed:
            self._refuse_soon(held, Outcome.DRAINING, "the server has stopped")
        elif (submit.parameters or submit.body) and (problem := unsendable(submit)):
            # Told here and not at the dispatch, where it would take the rest of its batch with it.
            self._refuse_soon(held, Outcome.INVALID_INPUT, problem)
        else:
            self._arrive(submit)
        self._memory.add(submit.bytes)  # after its arrival: the pressure that it makes is for those that come later

    def _arrive(self, submit: Submit) -> None:
        if submit.generation is not None:
            self._observer.asked(submit)
        self._mailbox.post(
            RequestArrived(
                submit.request,
                submit.tenant,
                submit.key,
                self._crew.parts_of(submit.key, submit.parts),
                submit.bytes,
                submit.deadline,
                submit.priority,
                self._quarantine.content(VersionId(*submit.key[:2]), submit, self._clock()) if self._quarantine else 0,
                prefix_of(submit),
            )
        )

    def _refuse_soon(self, held: Held, outcome: Outcome, detail: str) -> None:
        """Not within send(): whoever sends need not be ready for the answer yet."""
        loop = asyncio.get_running_loop()
        loop.call_soon(self._effects.resolve, held, outcome, detail, 0, held.submitted_at)

    def _written(self, message: Written) -> None:
        reply = self._effects.written(message)
        if reply is not None and reply.outcome is Outcome.COMPLETED:
            spent = reply.timings
            version = self._ids[reply.model, reply.version]
            outside = message.at - reply.received - spent.queue - spent.hand_over - spent.execute
            self._mailbox.post_quietly(ReplyWritten(message.request, max(0, outside), version))

    # -- from the core -------------------------------------------------------------------------

    def _carry_out(self, now: Instant, events: list[Event], effects: list[Effect]) -> None:
        self._recorder.record(now, events, effects, self._core.snapshot)
        self._observer.handled(now, events, effects)
        self._effects.carry_out(now, effects)
        if self._idle is not None and not self._idle.done() and self._core.is_idle() and not self._held:
            self._idle.set_result(None)

"""The virtual clock and what moves in it."""

from __future__ import annotations

from random import Random

from headway.core.effects import Effect
from headway.core.events import Event, ServerConfigured, VersionConfigured
from headway.core.ids import Part
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import Instant, ms
from headway.sim.agenda import Agenda
from headway.sim.clients import Clients
from headway.sim.driver import Driver
from headway.sim.fleet import Fleet
from headway.sim.scenario import KEY, VERSION
from headway.sim.sim_worker import Model
from headway.sim.workloads import Arrival


class Log:
    def __init__(self) -> None:
        self.calls: list[tuple[Instant, list[str], list[str]]] = []

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        self.calls.append((now, [type(e).__name__ for e in events], [type(e).__name__ for e in effects]))


def world(policy: BatchPolicy, arrivals: list[Arrival]) -> Log:
    log = Log()
    driver = Driver(Scheduler(), (log,))
    fleet = Fleet(driver, {VERSION: Model(lambda rows, length: ms(10))}, Random(1))
    driver.tell(ServerConfigured(ServerPolicy()))
    driver.tell(VersionConfigured(VERSION, policy))
    fleet.start()
    Clients(driver, Random(1)).open_loop(arrivals)
    driver.run()
    return log


def arrival(at: Instant, patience: int = ms(1000)) -> Arrival:
    return Arrival(at, KEY, (Part(1, 8),), patience=patience)


def test_all_events_of_one_instant_are_one_call() -> None:
    log = world(BatchPolicy(), [arrival(ms(5)), arrival(ms(5)), arrival(ms(15))])
    assert log.calls[1:] == [
        (ms(5), ["RequestArrived", "RequestArrived"], ["DispatchBatch"]),
        (ms(15), ["RequestArrived", "BatchCompleted"], ["ResolveRequest", "ResolveRequest", "DispatchBatch"]),
        (ms(25), ["BatchCompleted"], ["ResolveRequest"]),
    ]


def test_the_core_is_woken_when_it_asked_to_be() -> None:
    log = world(BatchPolicy(hold=True, max_queue_delay=ms(7)), [arrival(ms(5))])
    assert (ms(12), [], ["DispatchBatch"]) in log.calls


def test_the_agenda_keeps_the_order_of_entry_among_equal_times() -> None:
    agenda, done = Agenda(), []
    for name, when in (("late", 9), ("first", 5), ("second", 5)):
        agenda.at(when, lambda name=name: done.append(name))
    agenda.at(5, lambda: agenda.at(5, lambda: done.append("added meanwhile")))
    assert agenda.next() == 5
    agenda.run_due(5)
    assert done == ["first", "second", "added meanwhile"]
    assert agenda.next() == 9

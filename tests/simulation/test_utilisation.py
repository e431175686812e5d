"""Busy time is what workers really ran: not more than there was, however they end."""

from __future__ import annotations

import json
from random import Random

import pytest
from click.testing import CliRunner

from headway.cli.simulate import simulate
from headway.core.events import ServerConfigured, VersionConfigured
from headway.core.ids import Capacity, Part
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.scheduler import Scheduler
from headway.core.units import ms
from headway.sim.clients import Clients
from headway.sim.driver import Driver
from headway.sim.fleet import Fleet
from headway.sim.scenario import KEY, VERSION
from headway.sim.sim_worker import Model
from headway.sim.workloads import Arrival

BATCHES = Model(lambda rows, length: ms(10))
SEQUENCES = Model(lambda rows, length: ms(10), capacity=Capacity(batch_slots=0, sequences=2))


def fleet_of(model: Model, lost_at: int = 0) -> Fleet:
    """One worker that is sent one request at 5 ms (a sequence of two results), and may be lost."""
    driver = Driver(Scheduler())
    fleet = Fleet(driver, {VERSION: model}, Random(1))
    driver.tell(ServerConfigured(ServerPolicy()))
    style = Style.BATCH if model.capacity.batch_slots else Style.SEQUENCE
    driver.tell(VersionConfigured(VERSION, BatchPolicy(style=style)))
    fleet.start()
    Clients(driver, Random(1)).open_loop([Arrival(ms(5), KEY, (Part(1, 8),), outputs=2)])
    if lost_at:
        driver.at(lost_at, lambda: fleet.lose(fleet.living()[0], "killed"))
    driver.run()
    return fleet


def test_a_batch_counts_from_its_dispatch_to_its_end() -> None:
    assert fleet_of(BATCHES).busy(0, ms(100)) == ms(10)


def test_only_what_lies_between_the_two_instants_counts() -> None:
    assert fleet_of(BATCHES).busy(ms(8), ms(12)) == ms(4)


def test_a_batch_whose_worker_dies_counts_until_then_and_its_second_run_as_well() -> None:
    assert fleet_of(BATCHES, lost_at=ms(9)).busy(0, ms(100)) == ms(4) + ms(10)


def test_steps_count_until_the_last_one_or_the_death() -> None:
    assert fleet_of(SEQUENCES).busy(0, ms(100)) == ms(20)
    assert fleet_of(SEQUENCES, lost_at=ms(18)).busy(0, ms(100)) == ms(13)


@pytest.mark.parametrize("seed", range(1, 6))
def test_one_worker_is_never_busier_than_all_the_time_whatever_goes_wrong(seed: int) -> None:
    arguments = ["--faults", "--requests", "300", "--rate", "1000", "--seed", str(seed), "--json"]
    report = json.loads(CliRunner().invoke(simulate, arguments).output)
    assert 0.5 < report["utilisation"] <= 1

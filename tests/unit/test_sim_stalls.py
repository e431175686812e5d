"""When a loop that stands still now and then calls the core."""

from __future__ import annotations

import pytest

from headway.core.scheduler import Scheduler
from headway.core.units import ms
from headway.sim.driver import Driver
from headway.sim.stalls import NO_STALLS, Stalls


@pytest.mark.parametrize(("due", "called"), [(0, 0), (10, 10), (11, 13), (12, 13), (13, 13), (22, 22), (24, 26)])
def test_what_is_due_while_the_loop_stands_still_takes_place_when_that_is_over(due: int, called: int) -> None:
    assert Stalls(every=10, lasts=3).over(due) == called


def test_without_stalls_nothing_is_late() -> None:
    assert [NO_STALLS.over(due) for due in range(5)] == list(range(5))


def test_the_world_goes_on_while_the_loop_stands_still_and_all_of_it_is_heard_in_one_call() -> None:
    driver, seen = Driver(Scheduler()), []
    driver.stalls = Stalls(every=ms(10), lasts=ms(5))
    for at in (ms(11), ms(12), ms(14)):
        driver.at(at, lambda: seen.append(driver.now))
    driver.run()
    assert (seen, driver.now, driver.calls) == ([ms(11), ms(12), ms(14)], ms(15), 1)

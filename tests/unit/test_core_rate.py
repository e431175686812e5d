"""How long what waits will take, at the rate of the last seconds."""

from __future__ import annotations

from headway.core.rate import RateMeter
from headway.core.units import SECOND, ms


def test_before_anything_was_finished_one_second_is_as_good_as_any():
    assert RateMeter().time_for(1000, 5 * SECOND) == SECOND


def test_in_the_first_second_of_finishing_no_rate_is_known_yet():
    meter = RateMeter()
    begun = 7 * SECOND + ms(300)
    meter.add(1, begun)
    meter.add(4, begun + ms(50))
    for later in (ms(50), ms(600), ms(750), ms(999)):
        assert meter.time_for(20, begun + later) == SECOND, "5 in a moment are not 5 a second"


def test_after_that_it_is_what_was_finished_in_the_last_second_or_so():
    meter = RateMeter()
    begun = 7 * SECOND
    for at in range(40):
        meter.add(5, begun + at * ms(50))
    now = begun + 2 * SECOND
    assert meter.time_for(200, now) == 2 * SECOND
    assert meter.time_for(50, now) == SECOND // 2


def test_one_that_finishes_a_part_now_and_then_is_not_taken_for_one_that_begins():
    meter = RateMeter()
    for at in range(8):
        meter.add(1, 7 * SECOND + at * ms(1500))
    assert meter.time_for(10, 7 * SECOND + 7 * ms(1500)) > 5 * SECOND


def test_after_a_silence_it_begins_anew_also_where_it_was_saved_and_restored():
    meter = RateMeter()
    for at in range(20):
        meter.add(5, 7 * SECOND + at * ms(50))
    meter.add(1, 20 * SECOND)
    restored = RateMeter()
    restored.restore(meter.snapshot())
    assert meter.time_for(20, 20 * SECOND + ms(10)) == restored.time_for(20, 20 * SECOND + ms(10)) == SECOND

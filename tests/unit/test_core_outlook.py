"""What was foreseen is corrected by how it turned out, up to what hardly ever happens."""

from __future__ import annotations

from random import Random

import pytest

from headway.core.outlook import ENOUGH, RARE, Outlook
from headway.core.units import MILLISECOND, SECOND

FORESEEN = 100 * MILLISECOND
ANSWERS = 20_000
NEARLY = 1.01
"""What is beyond by less is not looked at: one that is often met exactly is beyond by a hair each time."""


def test_hardly_any_answer_takes_longer_than_at_most_whatever_the_distribution() -> None:
    for spread in (
        lambda rng: rng.expovariate(1),
        lambda rng: rng.uniform(0.9, 1.1),
        lambda rng: 1 + (rng.random() < 0.1),
    ):
        rng, outlook, beyond = Random(1), Outlook(), 0
        for number in range(ANSWERS):
            took = int(FORESEEN * spread(rng))
            beyond += number > ANSWERS // 2 and took > NEARLY * outlook.at_most(FORESEEN)
            outlook.learn(FORESEEN, took)
        assert RARE / 4 <= beyond / (ANSWERS / 2) <= 2 * RARE or beyond == 0


def test_at_most_is_no_more_than_was_seen() -> None:
    outlook = Outlook()
    for _ in range(500):
        outlook.learn(FORESEEN, 2 * FORESEEN)
    assert outlook.at_most(FORESEEN) <= 2 * FORESEEN
    assert outlook.at_most(FORESEEN) > 1.9 * FORESEEN


def test_what_a_change_for_the_worse_taught_is_let_go_again_once_it_is_usual() -> None:
    outlook = Outlook()
    for _ in range(500):
        outlook.learn(FORESEEN, FORESEEN)
    for _ in range(100):
        outlook.learn(FORESEEN, 4 * FORESEEN)
    assert outlook.at_most(FORESEEN) > 4 * FORESEEN
    for _ in range(ANSWERS):
        outlook.learn(FORESEEN, 4 * FORESEEN)
    assert 3.9 * FORESEEN < outlook.at_most(FORESEEN) < 4.3 * FORESEEN


def test_soon_ones_that_are_late_by_many_times_say_nothing_of_those_far_off() -> None:
    rng, outlook = Random(3), Outlook()
    for number in range(ANSWERS):
        soon = number % 2
        foreseen = MILLISECOND if soon else FORESEEN
        outlook.learn(foreseen, foreseen + int(10 * MILLISECOND * rng.random()))
    assert 10 * MILLISECOND < outlook.at_most(MILLISECOND) < 15 * MILLISECOND
    assert outlook.at_most(SECOND) < 1.2 * SECOND


def test_what_is_expected_is_the_mean_of_the_last_few_dozen() -> None:
    outlook = Outlook()
    for _ in range(500):
        outlook.learn(FORESEEN, 3 * FORESEEN)
    for _ in range(500):
        outlook.learn(FORESEEN, FORESEEN // 2)
    assert outlook.expect(SECOND) == pytest.approx(SECOND / 2, rel=0.01)
    assert Outlook().expect(SECOND) == SECOND


def test_it_is_tried_after_a_few_dozen_answers() -> None:
    outlook = Outlook()
    for _ in range(ENOUGH - 1):
        outlook.learn(FORESEEN, FORESEEN)
    assert not outlook.is_tried
    outlook.learn(FORESEEN, FORESEEN)
    assert outlook.is_tried


def test_refusals_alone_make_it_let_somebody_in_again() -> None:
    outlook = Outlook()
    for _ in range(500):
        outlook.learn(FORESEEN, 4 * FORESEEN)
    refusals = 0
    while outlook.at_most(FORESEEN) > 1.1 * FORESEEN:
        outlook.doubt()
        refusals += 1
        assert refusals < 100_000
    assert refusals > 1000, "a few refusals tell nothing"


def test_a_restored_one_goes_on_like_the_first() -> None:
    rng, first, second = Random(2), Outlook(), Outlook()
    for _ in range(100):
        first.learn(FORESEEN, int(FORESEEN * rng.expovariate(1)))
    second.restore(first.snapshot())
    for outlook in (first, second):
        outlook.learn(FORESEEN, 3 * FORESEEN)
        outlook.doubt()
    assert first.snapshot() == second.snapshot()
    assert first.at_most(SECOND) == second.at_most(SECOND)
    assert first.is_tried
    assert second.is_tried

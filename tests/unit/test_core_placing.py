"""Which engine of several: plain values in, an engine out."""

from __future__ import annotations

from headway.core.placing import Option, choose, elephants_own

ENGINE = Option(
    engine=0,
    takes=True,
    has_room=True,
    held=0,
    ahead=0,
    running=0,
    blocks=100,
    step_tokens=512,
    pool_tokens=1_000_000,
)


def options(*changes: dict[str, int]) -> list[Option]:
    return [ENGINE._replace(engine=number, **change) for number, change in enumerate(changes)]


def test_one_is_the_one() -> None:
    assert choose(100, options({})) == 0
    assert choose(100, options({"takes": False})) is None
    assert choose(100, []) is None


def test_whoever_has_least_to_compute_before_its_first_token() -> None:
    assert choose(100, options({"ahead": 200}, {"ahead": 100}, {"ahead": 150})) == 1
    assert choose(100, options({"ahead": 200, "takes": False}, {"ahead": 300})) == 1


def test_a_cache_draws_as_much_as_it_saves() -> None:
    assert choose(100, options({}, {"held": 64})) == 1
    assert choose(100, options({}, {"held": 64, "ahead": 63})) == 1
    assert choose(100, options({}, {"held": 64, "ahead": 65})) == 0


def test_room_goes_before_everything() -> None:
    assert choose(100, options({"has_room": False, "held": 96}, {"ahead": 5000})) == 1


def test_of_equals_the_emptier() -> None:
    assert choose(100, options({"running": 3}, {"running": 2})) == 1
    assert choose(100, options({"running": 3, "blocks": 5}, {"running": 3, "blocks": 6})) == 1
    assert choose(100, options({}, {})) == 0


def test_elephants_go_to_an_engine_of_their_own_as_long_as_it_has_room() -> None:
    two = options({}, {"ahead": 6000})
    assert choose(2047, two) == 0
    assert choose(2048, two) == 1, "four steps of prefill"
    assert choose(2048, options({"held": 64}, {"ahead": 6000})) == 0, "most of it need not be computed here"
    assert choose(2048, options({}, {"has_room": False})) == 0
    assert choose(2048, options({"has_room": False}, {"has_room": False})) == 1
    assert choose(2048, options({})) == 0


def test_what_takes_an_eighth_of_the_pool_is_an_elephant_too() -> None:
    two = options({"pool_tokens": 1600}, {"pool_tokens": 1600, "ahead": 9})
    assert choose(199, two) == 0
    assert choose(200, two) == 1


def test_of_four_engines_one_is_the_elephants_and_of_one_none() -> None:
    assert elephants_own(options({})) == []
    assert elephants_own(options({}, {}, {})) == [2]
    assert elephants_own(options(*[{} for _ in range(8)])) == [7, 6]

"""The prefix cache: what is found is what was computed, whatever the hash says."""

from __future__ import annotations

import pytest

from headway.llm.plan.prefix import PrefixCache, chained, root
from tests.unit.plan_world import World, prompt


def weak(before: bytes, tokens: tuple[int, ...]) -> bytes:
    """All blocks are alike."""
    return b"same"


def kept(cache: PrefixCache, tokens: list[int], blocks: list[int], salt: str = "s") -> list[bytes]:
    hashes: list[bytes] = []
    cache.extend(root(salt), hashes, tokens)
    for number in range(len(hashes)):
        cache.keep(root(salt), hashes, tokens, blocks, number)
    return hashes


def found(cache: PrefixCache, tokens: list[int], salt: str = "s", limit: int = 99) -> list[int]:
    hashes: list[bytes] = []
    cache.extend(root(salt), hashes, tokens)
    return cache.find(root(salt), hashes, tokens, limit)


def test_hashes_chain_so_that_equal_blocks_behind_other_ones_are_not_alike():
    same = (7, 7, 7, 7)
    assert chained(chained(root("s"), (1, 2, 3, 4)), same) != chained(chained(root("s"), (5, 6, 7, 8)), same)


def test_hashes_are_extended_from_where_they_end():
    cache = PrefixCache(4)
    at_once: list[bytes] = []
    cache.extend(root("s"), at_once, prompt(14))
    bit_by_bit: list[bytes] = []
    for length in (3, 5, 9, 14):
        cache.extend(root("s"), bit_by_bit, prompt(length))
    assert bit_by_bit == at_once and len(at_once) == 3


def test_a_common_beginning_is_found_in_full_blocks_as_far_as_it_goes():
    cache = PrefixCache(4)
    kept(cache, prompt(12), [10, 11, 12])
    assert found(cache, prompt(12)) == [10, 11, 12]
    assert found(cache, [*prompt(11), 999, 5, 5, 5, 5]) == [10, 11]
    assert found(cache, prompt(7)) == [10]
    assert found(cache, prompt(12), limit=2) == [10, 11]
    assert found(cache, prompt(12, start=1)) == []


def test_another_salt_or_version_or_adapter_finds_nothing():
    cache = PrefixCache(4)
    kept(cache, prompt(8), [0, 1], "tenant a")
    assert found(cache, prompt(8), "tenant b") == []
    assert root("v1", "", "s") != root("v2", "", "s") != root("v2", "adapter", "s")
    assert root("ab", "c") != root("a", "bc")


def test_a_hash_is_not_believed():
    cache = PrefixCache(4, weak)
    kept(cache, [1, 2, 3, 4], [0])
    assert found(cache, [1, 2, 3, 4]) == [0]
    assert found(cache, [1, 2, 3, 5]) == [], "other tokens"
    assert found(cache, [1, 2, 3, 4], "other") == [], "another root"
    assert cache.collisions == 2


def test_equal_tokens_behind_other_ones_are_not_taken_even_where_the_hash_is_equal():
    cache = PrefixCache(4, lambda before, tokens: bytes([tokens[0]]))
    kept(cache, [1, 2, 3, 4, 9, 9, 9, 9], [0, 1])
    kept(cache, [2, 2, 2, 2], [5])
    assert found(cache, [2, 2, 2, 2, 9, 9, 9, 9]) == [5]


def test_where_another_has_the_same_content_or_what_it_continues_is_not_cached_nothing_is_kept():
    cache = PrefixCache(4)
    kept(cache, prompt(8), [0, 1])
    kept(cache, prompt(12), [7, 8, 9])
    assert len(cache) == 2 and 9 not in cache, "block 9 continues 8, which is not the one that is cached"
    hashes: list[bytes] = []
    cache.extend(root("s"), hashes, prompt(12))
    assert not cache.keep(root("s"), hashes, prompt(12), [7, 8, 9], 2)


def test_what_is_forgotten_is_found_no_more():
    cache = PrefixCache(4)
    kept(cache, prompt(12), [0, 1, 2])
    cache.forget(2)
    assert found(cache, prompt(12)) == [0, 1]
    assert len(cache) == 2 and 2 not in cache


def test_the_planner_is_not_misled_by_a_weak_hash():
    world = World(hash=weak)
    for id in range(1, 5):
        world.add(id, prompt(9, start=id), tenant="a")
    world.run()
    assert world.state.cache.hits == 0 and len(world.tokens) == 4


def test_a_salt_that_is_a_tenants_name_finds_nothing_of_that_tenant():
    world = World()
    world.add(1, prompt(13), tenant="a")
    world.run()
    world.add(2, prompt(13), tenant="b", salt="a")
    assert world.step().rows[0].start == 0


@pytest.mark.parametrize("salted", [False, True])
def test_tenants_share_only_under_a_salt_that_they_have_agreed_on(salted: bool):
    world = World()
    salt = "agreed" if salted else ""
    world.add(1, prompt(13), tenant="a", salt=salt)
    world.run()
    world.add(2, prompt(13), tenant="b", salt=salt)
    assert world.step().rows[0].start == (12 if salted else 0)


def test_versions_and_adapters_do_not_meet():
    one, other = World(), World()
    other.state.names = ("version 2", "")
    assert one.state.root("a", "s") != other.state.root("a", "s")


def test_idle_blocks_of_two_tenants_that_share_go_the_last_of_the_chain_first():
    """One has computed the beginning, the other what follows: without the beginning the rest cannot be found."""
    world = World(blocks=12)
    world.add(1, prompt(9), max_tokens=1, tenant="a", salt="both")
    world.run()
    world.add(2, prompt(17), max_tokens=1, tenant="b", salt="both")
    world.run()
    world.add(3, prompt(5, start=3), max_tokens=1, tenant="a", salt="both")
    world.run()
    for id in range(4, 9):
        world.add(id, prompt(33, start=id), max_tokens=1, tenant="c")
        world.run()
    assert world.state.pool.evicted["room"] > 0

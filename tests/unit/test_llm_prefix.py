"""The prefix cache: what is found is what was computed, whatever the hash says."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from headway.llm.plan.prefix import Found, PrefixCache, chained, root
from headway.llm.plan.request import SequenceId
from headway.llm.plan.sequence import RUNNING
from tests.unit.plan_world import World, prompt, waits


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


def test_where_another_has_the_same_content_its_twin_is_not_kept_and_what_continues_that_is():
    cache = PrefixCache(4)
    kept(cache, prompt(8), [0, 1])
    kept(cache, prompt(12), [7, 8, 9])
    assert len(cache) == 3 and cache.twins() == [(7, 0), (8, 1)]
    assert found(cache, prompt(12)) == [0, 1, 9]
    assert not cache.keeps(7) and not cache.keeps(1), "8 has it from now on"
    assert found(cache, prompt(12)) == [0, 8, 9] and cache.twins() == []
    assert cache.forget(0) == [0, 8, 9]


def test_where_what_it_continues_is_not_cached_nothing_is_kept():
    cache = PrefixCache(4)
    hashes: list[bytes] = []
    cache.extend(root("s"), hashes, prompt(12))
    assert not cache.keep(root("s"), hashes, prompt(12), [7, 8, 9], 2) and cache.twins() == []


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


@pytest.mark.parametrize("salt", ["", "agreed"])
def test_what_an_adapter_has_computed_is_its_own(salt: str):
    world = World()
    for id, adapter in ((1, ""), (2, "one"), (3, "other"), (4, "one")):
        world.add(id, prompt(13), max_tokens=1, salt=salt, adapter=adapter)
        assert world.step().rows[0].start == (12 if id == 4 else 0)


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


@pytest.mark.parametrize("hash", [chained, lambda before, tokens: bytes([sum(tokens) % 5])])
def test_what_is_remembered_is_what_a_fresh_look_finds(hash):
    """Random keeping and losing; of each of some prompts what was found before is brought up to date now and then."""
    random = Random(1)
    cache = PrefixCache(2, hash)
    prompts = [[*[1] * random.randrange(16), *random.choices((1, 2), k=random.randrange(2, 20))] for _ in range(30)]
    chains: list[list[bytes]] = [[] for _ in prompts]
    for tokens, hashes in zip(prompts, chains, strict=True):
        cache.extend(b"root", hashes, tokens)
    remembered = [Found() for _ in prompts]
    held: dict[int, None] = {}
    lengths = Counter()
    for _ in range(3_000):
        which = random.randrange(len(prompts))
        tokens, hashes, known = prompts[which], chains[which], remembered[which]
        what = random.random()
        if what < 0.3:
            found = cache.find(b"root", hashes, tokens, 99)
            free = [block for block in range(40) if block not in held]
            if len(found) < len(hashes) and free:
                blocks = [*found, random.choice(free)]
                if cache.keep(b"root", hashes, tokens, blocks, len(found)):
                    held[blocks[-1]] = None
        elif what < 0.35 and held:
            found = cache.find(b"root", hashes, tokens, 99)
            free = [block for block in range(40) if block not in held]
            if found and free:
                which = random.randrange(len(found))
                first, twin = found[which], random.choice(free)
                cache.keep(b"root", hashes, tokens, [*found[:which], twin], which)
                assert cache.twin(twin) == first and not cache.keeps(first)
                del held[first]
                held[twin] = None
        elif what < 0.45 and held:
            for block in cache.forget(random.choice(list(held))):
                del held[block]
        else:
            limit = random.choice((99, 99, 3))
            cache.look(b"root", hashes, tokens, limit, known)
            assert known.blocks == cache.find(b"root", hashes, tokens, limit)
            lengths[len(known.blocks)] += 1
    assert len(lengths) > 2


def test_a_look_takes_as_long_as_there_is_news():
    class Watched(PrefixCache):
        looks = 0

        def _following_block(self, *arguments):
            self.looks += 1
            return super()._following_block(*arguments)

    world = World(blocks=60, max_context=900, admit="unlimited")
    world.state.cache = watched = Watched(4)
    world.state.pool._forget = watched.forget
    world.add(1, prompt(160), max_tokens=1)
    world.run()
    world.add(2, prompt(160), max_tokens=60)
    while not world.of(2).produced:
        world.step()
    world.add(3, [*prompt(160), *prompt(70, start=3)])
    world.step()
    watched.looks = 0
    for _ in range(20):
        world.step()
    assert waits(world, [3]) and watched.looks <= 20 * 3, "of 40 blocks that are found each time"


def test_of_what_is_found_the_idle_ones_are_the_last():
    random = Random(2)
    world = World(blocks=30, admit="unlimited", max_sequences=4)
    seen = Counter()
    for id in range(1, 200):
        tokens = [*[1] * random.randrange(40), *[random.randrange(3) for _ in range(random.randrange(1, 9))]]
        world.add(id, tokens, max_tokens=random.randrange(1, 9), tenant="ab"[id % 2], salt="all")
        for _ in range(random.randrange(4)):
            world.step()
            for each in world.state.sequences.values():
                if each.status is not RUNNING:
                    found = world.state.found(each)
                    idle = sum(world.state.pool.is_idle(block) for block in found)
                    assert world.state.idle_of(found) == idle
                    seen[0 < idle < len(found)] += 1
    assert seen[True] > 10


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("length", [8, 9, 11, 12])
def test_a_conversation_goes_on_from_a_prompt_that_was_found_whole(length: int, together: bool):
    """Whether the prompt ends with a block or not, and whether the other who computed it is still there or not."""
    world = World()
    world.add(1, prompt(length), max_tokens=30 if together else 1)
    while not world.tokens:
        world.step()
    world.add(2, prompt(length), max_tokens=9)
    while SequenceId(2) in world.state.sequences:
        world.step(lambda id: 100 * id.request + len(world.tokens.get(id, ())))
    world.planner.abort(1)
    world.planner.check()
    conversation = [*prompt(length), *world.tokens[SequenceId(2)]]
    world.add(3, conversation, max_tokens=1)
    (row,) = world.step().rows
    assert row.start == (len(conversation) - 1) // 4 * 4, "all that the second one has computed"


def test_of_blocks_with_the_same_content_one_is_left():
    world = World(defer=False)
    for id in (1, 2, 3):
        world.add(id, prompt(12), max_tokens=2 + id)
    world.run()
    held = world.state.cache.held()
    assert len(held) == world.state.pool.idle_count == len({entry.hash for entry in held}) == 4
    assert world.state.cache.twins() == []

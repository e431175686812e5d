"""The pool of blocks: taken, shared, given back, evicted, fewer and more of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from headway.llm.plan.blocks import BlockPool


class Pool(BlockPool):
    """forgotten: blocks whose content was thrown away, in order.  cached: blocks with content worth keeping."""

    def __init__(self, size: int, weights: dict[str, float] | None = None) -> None:
        self.forgotten: list[int] = []
        self.cached: list[int] = []
        super().__init__(size, self._forgets, lambda tenant: (weights or {}).get(tenant, 1.0))

    def _forgets(self, block: int) -> list[int]:
        self.forgotten.append(block)
        return [block]

    def back(self, blocks: list[int]) -> None:
        self.give_back(blocks, self.cached.__contains__)


def test_what_is_taken_is_held_once_and_by_whoever_took_it():
    pool = Pool(4)
    blocks = pool.take(3, "a")
    assert [pool.holders[block] for block in blocks] == [1, 1, 1]
    assert (pool.held, pool.in_use, pool.available) == ({"a": 3}, 3, 1)


def test_a_shared_block_is_free_when_the_last_holder_gives_it_back():
    pool = Pool(2)
    (block,) = pool.take(1, "a")
    pool.share(block)
    pool.back([block])
    assert (pool.in_use, pool.available) == (1, 1)
    pool.back([block])
    assert (pool.in_use, pool.available, pool.held) == (0, 2, {})


def test_a_block_whose_content_is_cached_is_idle_and_can_be_had_and_can_be_shared():
    pool = Pool(2)
    blocks = pool.cached = pool.take(2, "a")
    pool.back(blocks)
    assert (pool.free, pool.idle_count, pool.available, pool.in_use) == (0, 2, 2, 0)
    pool.share(blocks[0])
    assert (pool.idle_count, pool.in_use, pool.held) == (1, 1, {"a": 1})
    assert not pool.is_idle(blocks[0]) and pool.is_idle(blocks[1])


def test_what_is_idle_is_evicted_only_when_nothing_is_free():
    pool = Pool(4)
    pool.cached = pool.take(2, "a")
    pool.back(pool.cached)
    pool.take(2, "b")
    assert pool.forgotten == []
    pool.take(1, "b")
    assert len(pool.forgotten) == 1 and pool.evicted == {"room": 1, "shrunk": 0}


def test_the_last_block_of_a_chain_is_evicted_first_and_the_longest_idle_chain_before_others():
    pool = Pool(6)
    old, new = pool.take(3, "a"), pool.take(3, "a")
    pool.cached = old + new
    pool.back(old)
    pool.back(new)
    pool.take(4, "a")
    assert pool.forgotten == [old[2], old[1], old[0], new[2]]


def test_a_chain_that_was_used_again_outlives_one_that_was_not():
    pool = Pool(4)
    first, second = pool.take(2, "a"), pool.take(2, "a")
    pool.cached = first + second
    pool.back(first)
    pool.back(second)
    for block in first:
        pool.share(block)
    pool.back(first)
    pool.take(2, "a")
    assert pool.forgotten == [second[1], second[0]]


def test_the_tenant_furthest_beyond_its_share_loses_first_by_weight():
    pool = Pool(8, {"heavy": 4.0})
    heavy, light = pool.take(5, "heavy"), pool.take(3, "light")
    pool.cached = heavy + light
    pool.back(heavy)
    pool.back(light)
    pool.take(1, "light")
    assert pool.forgotten == [light[2]], "3 for a weight of 1 is more than 5 for one of 4"


def test_a_smaller_pool_loses_what_is_free_at_once_then_what_is_idle_then_what_is_given_back():
    pool = Pool(6)
    held, pool.cached = pool.take(2, "a"), pool.take(2, "a")
    pool.back(pool.cached)
    pool.resize(1)
    assert (pool.usable, pool.available, pool.in_use, pool.debt) == (1, 0, 2, 1)
    assert pool.evicted == {"room": 0, "shrunk": 2}
    pool.back(held)
    assert (pool.usable, pool.available, pool.debt, pool.in_use) == (1, 1, 0, 0)


def test_a_pool_that_grows_again_pays_its_debt_first_then_takes_back_what_is_gone_then_has_new_blocks():
    pool = Pool(4)
    held = pool.take(3, "a")
    pool.resize(1)
    assert (pool.debt, len(pool.gone)) == (2, 1)
    pool.resize(2)
    assert (pool.debt, len(pool.gone)) == (1, 1)
    pool.resize(6)
    assert (pool.debt, pool.gone, pool.size, pool.usable, pool.available) == (0, [], 6, 6, 3)
    pool.back(held)
    assert sorted(pool.take(6, "b")) == [0, 1, 2, 3, 4, 5]


def test_a_block_is_never_handed_out_twice():
    pool = Pool(5)
    blocks = pool.take(2, "a") + pool.take(3, "b")
    assert sorted(blocks) == [0, 1, 2, 3, 4]


def test_an_eviction_looks_at_no_more_idle_blocks_than_it_evicts():
    looked: list[int] = []

    class Watched(OrderedDict[int, None]):
        def __iter__(self) -> Iterator[int]:
            for block in super().__iter__():
                looked.append(block)
                yield block

    pool = Pool(100)
    blocks = pool.take(100, "a")
    pool.cached = blocks
    pool.back(blocks)
    pool.idle["a"] = Watched(pool.idle["a"])
    pool.take(2, "a")
    assert looked == pool.forgotten == [99, 98]

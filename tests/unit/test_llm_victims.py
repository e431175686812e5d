"""Who loses its blocks."""

from __future__ import annotations

from headway.llm.plan.sequence import Sequence
from headway.llm.plan.victims import IMMUNE_AFTER, enough, in_order
from tests.unit.plan_world import sequence


def order(sequences: list[Sequence], greedy: str = "nobody") -> list[int]:
    oldest = min(sequences, key=lambda each: each.number)
    return [each.number for each in in_order(sequences, oldest, lambda each: each.account.tenant == greedy)]


def test_the_oldest_is_never_taken():
    assert order([sequence(1, priority=9), sequence(2)]) == [2]
    assert order([sequence(1)]) == []


def test_a_lower_class_goes_first_however_much_work_is_lost():
    assert order([sequence(1), sequence(2), sequence(3, priority=1, computed=900), sequence(4, priority=2)]) == [
        4,
        3,
        2,
    ]


def test_then_a_tenant_beyond_its_share():
    assert order([sequence(1), sequence(2, computed=5), sequence(3, tenant="b", computed=90)], greedy="b") == [3, 2]


def test_then_whoever_loses_least_then_the_last_to_come():
    assert order([sequence(1), sequence(2, computed=50), sequence(3, computed=20), sequence(4, computed=20)]) == [
        4,
        3,
        2,
    ]


def test_who_was_preempted_twice_is_immune():
    tried = sequence(2)
    tried.preemptions = IMMUNE_AFTER - 1
    assert order([sequence(1), tried, sequence(3)]) == [3, 2]
    tried.preemptions = IMMUNE_AFTER
    assert order([sequence(1), tried, sequence(3)]) == [3]


def freed(each: Sequence) -> int:
    return each.computed


def test_as_many_are_taken_as_are_needed_and_no_more():
    candidates = [sequence(1, computed=3), sequence(2, computed=4), sequence(3, computed=9)]
    taken = enough(candidates, 5, 0, freed)
    assert taken is not None and [each.number for each in taken] == [1, 2]


def test_where_all_together_are_not_enough_nobody_is_taken():
    assert enough([sequence(1, computed=3), sequence(2, computed=4)], 8, 0, freed) is None
    assert enough([sequence(1, computed=30)], 8, 2, freed) is None


def test_who_has_nothing_to_give_is_left_alone_unless_its_slot_is_wanted():
    candidates = [sequence(1, computed=0), sequence(2, computed=4)]
    taken = enough(candidates, 2, 0, freed)
    assert taken is not None and [each.number for each in taken] == [2]
    taken = enough(candidates, 0, 1, freed)
    assert taken is not None and [each.number for each in taken] == [1]

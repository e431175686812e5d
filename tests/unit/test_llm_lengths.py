"""How long answers turn out."""

from __future__ import annotations

from headway.llm.plan.lengths import CELLS, OutputLengths, _cell, _upper


def after(*lengths: int) -> OutputLengths:
    known = OutputLengths()
    for length in lengths:
        known.add(length)
    return known


def test_every_length_lies_in_its_cell_and_cells_follow_each_other():
    cells = [_cell(length) for length in range(1, 5_000)]
    assert cells == sorted(cells) and cells[:8] == [0, 1, 2, 3, 4, 5, 6, 7]
    for length in range(1, 5_000):
        assert length <= _upper(_cell(length)) and (_cell(length) == 0 or _upper(_cell(length) - 1) < length)
    assert _cell(1 << 60) == CELLS - 1


def test_a_cell_is_no_wider_than_a_quarter_of_what_is_in_it():
    for cell in range(1, 60):
        assert _upper(cell) - _upper(cell - 1) <= max(1, (_upper(cell - 1) + 1) / 4)


def test_before_much_is_known_an_answer_may_be_as_long_as_it_may():
    assert after(*[5] * 15).expect(0, 700, 1) == 700


def test_where_all_are_alike_that_is_what_is_expected():
    known = after(*[100] * 50)
    assert 100 <= known.expect(0, 700, 1) <= 111
    assert known.expect(0, 60, 1) == 60, "never more than it may"


def test_who_has_produced_more_than_any_before_is_expected_to_double():
    assert after(*[10] * 50).expect(40, 700, 1) == 81


def test_what_is_expected_is_more_than_what_is_there():
    known = after(*[8, 9, 10, 11] * 20)
    for produced in range(12):
        for number in range(20):
            assert known.expect(produced, 700, number) > produced


def test_over_many_sequences_the_expected_lengths_are_spread_as_the_known_ones():
    known = after(*[10] * 300, *[200] * 100)
    expected = [known.expect(0, 700, number) for number in range(400)]
    assert 0.2 < sum(length > 100 for length in expected) / 400 < 0.3
    assert all(length > 100 for length in (known.expect(50, 700, number) for number in range(1, 41)))


def test_what_was_long_ago_is_forgotten():
    known = after(*[10] * 1_000, *[400] * 5_000)
    assert sum(known.expect(0, 700, number) > 300 for number in range(100)) >= 98


def test_it_does_not_overflow():
    known = after(*[10] * 60_000)
    assert 10 <= known.expect(0, 700, 1) <= 12


def test_before_much_is_known_an_answer_is_as_long_as_is_expected_and_at_most_as_it_may_be():
    known = OutputLengths(200)
    lengths = [known.expect(0, 4_000, number) for number in range(1_000)]
    assert 150 < sum(lengths) / 1_000 < 250 and max(lengths) < 1_000 and 100 < known.spread < 300
    assert known.expect(0, 60, 15) <= 60


def test_answers_that_end_take_the_place_of_what_was_expected_one_by_one():
    known, nothing = OutputLengths(200), OutputLengths()
    means = []
    for _ in range(20):
        known.add(10)
        nothing.add(10)
        means.append(sum(known.expect(0, 4_000, number) for number in range(100)) / 100)
    assert means[0] > means[4] > means[8] > means[12] > means[15] and means[4] > 50 and means[15] < 12
    assert (
        [known.expect(40, 4_000, n) for n in range(9)] == [nothing.expect(40, 4_000, n) for n in range(9)] == [81] * 9
    )
    assert abs(known.spread - nothing.spread) < 1e-3

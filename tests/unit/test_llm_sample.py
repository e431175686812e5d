"""The sampler against the definitions: what may come, how often it comes, and that nobody's company matters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

torch = pytest.importorskip("torch", reason="the sampler needs the extra torch")

from headway.llm.sample import draw as drawing  # noqa: E402
from headway.llm.sample.history import History  # noqa: E402
from headway.llm.sample.params import SamplingParams  # noqa: E402
from headway.llm.sample.sampler import Sampled, sample  # noqa: E402
from tests.unit.plain_sampler import adjusted, distribution  # noqa: E402

DRAWS = 20_000
AT_ONCE = 1_000


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Threads of tensors this small only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def logits_of(size: int, seed: int, spread: float = 3.0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread


def history(params: SamplingParams, position: int = 0, choice: int = 0) -> History:
    made = History(params, [0], choice=choice)
    made.position = position
    return made


def drawn(logits: torch.Tensor, params: SamplingParams, count: int = DRAWS) -> Counter[int | None]:
    """How often each token comes, over so many positions of one sequence."""
    seen: Counter[int | None] = Counter()
    for start in range(0, count, AT_ONCE):
        rows = [history(params, start + n) for n in range(AT_ONCE)]
        seen.update(one.token for one in sample(logits.expand(AT_ONCE, -1), rows))
    return seen


def is_plausible(seen: Counter[int | None], expected: dict[int, float]) -> bool:
    """Chi-square at 5 standard deviations; cells that expect fewer than 8 are one."""
    count = sum(seen.values())
    cells, rest_seen, rest_expected = [], 0, 0.0
    for token, p in expected.items():
        if p * count < 8:
            rest_seen, rest_expected = rest_seen + seen[token], rest_expected + p * count
        else:
            cells.append((seen[token], p * count))
    if rest_expected >= 8:
        cells.append((rest_seen, rest_expected))
    chi = sum((have - want) ** 2 / want for have, want in cells)
    free = len(cells) - 1
    return chi <= free + 5 * math.sqrt(2 * free) + 5


COMBINATIONS = [
    SamplingParams(),
    SamplingParams(temperature=0.3),
    SamplingParams(temperature=1.9),
    SamplingParams(top_k=1),
    SamplingParams(top_k=7),
    SamplingParams(top_p=0.5),
    SamplingParams(top_p=0.95, temperature=1.5),
    SamplingParams(min_p=0.1),
    SamplingParams(min_p=1.0),
    SamplingParams(top_k=20, top_p=0.7),
    SamplingParams(top_p=0.9, min_p=0.02),
    SamplingParams(top_k=12, min_p=0.05, top_p=0.8, temperature=0.8),
    SamplingParams(top_k=150, top_p=0.99, temperature=2.0),
    SamplingParams(logit_bias=((3, 4.0), (9, -100.0)), bad=(1, 2)),
    SamplingParams(logit_bias=((3, 2.0), (3, 2.0)), stops=(0, 5), min_tokens=100_000, top_p=0.9),
]


@pytest.mark.parametrize("params", COMBINATIONS, ids=str)
def test_tokens_come_from_exactly_their_support_and_as_often_as_they_should(params: SamplingParams) -> None:
    logits = logits_of(200, seed=4)
    expected = distribution(adjusted(logits.tolist(), params), params)
    seen = drawn(logits, params)
    assert sum(seen.values()) == DRAWS
    assert seen.keys() <= expected.keys()
    assert {token for token, p in expected.items() if p * DRAWS > 30} <= seen.keys()
    assert is_plausible(seen, expected)


def support(logits: torch.Tensor, params: SamplingParams) -> list[int]:
    """Every token that comes for some u, found by asking for very many of them."""
    rows, size = 512, len(logits)
    cuts = drawing.Cuts(
        torch.full((rows,), params.temperature, dtype=torch.float64),
        torch.full((rows,), min(params.top_k, size) or size),
        torch.full((rows,), params.top_p, dtype=torch.float64),
        torch.full((rows,), params.min_p, dtype=torch.float64),
        torch.linspace(0, 1 - 2**-53, rows, dtype=torch.float64),
    )
    return sorted(set(drawing.draw(logits.expand(rows, -1), logits.max().expand(rows), cuts).tolist()))


@pytest.mark.parametrize("seed", range(30))
def test_the_support_is_exact_with_ties_and_with_more_tokens_than_are_looked_at_first(seed: int) -> None:
    random = Random(seed)
    size = random.choice([5, 63, 64, 65, 256, 257, 300, 8500])
    logits = (logits_of(size, seed, spread=0.4 if seed % 3 else 3.0) * 4).round() / 4  # many are equal
    logits[random.randrange(size)] = -math.inf
    params = SamplingParams(
        top_k=random.choice([0, 1, 2, 5, 63, 64, 65, 200, size]),
        top_p=random.choice([1.0, 0.999, 0.9, 0.3, 1e-6]),
        min_p=random.choice([0.0, 0.0, 0.2, 0.6]),
        temperature=random.choice([0.5, 1.0, 2.0]),
    )
    expected = distribution(logits.tolist(), params)
    found = support(logits, params)
    assert set(found) <= expected.keys()
    assert {token for token, p in expected.items() if p > 2 / 512} <= set(found)


def test_all_logits_equal_leave_the_smaller_ids() -> None:
    logits = torch.zeros(5000)
    assert support(logits, SamplingParams(top_k=70)) == list(range(70))
    assert support(logits, SamplingParams(top_p=0.01)) == list(range(50))
    assert sample(logits.expand(1, -1), [history(SamplingParams(temperature=0))])[0].token == 0


def test_a_flat_distribution_needs_all_of_the_vocabulary_and_gets_it() -> None:
    logits = torch.linspace(0, 1e-3, 1100)
    expected = distribution(logits.tolist(), SamplingParams(top_p=0.9))
    assert 985 < len(expected) < 995
    seen = drawn(logits, SamplingParams(top_p=0.9), 6000)
    assert seen.keys() <= expected.keys()
    assert len(seen) > len(expected) * 0.98


def assorted(count: int, seed: int) -> list[History]:
    """Sequences of all kinds, somewhere in their output."""
    random = Random(seed)
    made = []
    for number in range(count):
        params = SamplingParams(
            temperature=random.choice([0.0, 0.7, 1.0, 1.3]),
            top_k=random.choice([0, 0, 1, 40, 100]),
            top_p=random.choice([1.0, 0.95, 0.5]),
            min_p=random.choice([0.0, 0.0, 0.05]),
            presence=random.choice([0.0, 0.0, 1.0]),
            frequency=random.choice([0.0, 0.0, -0.5]),
            repetition=random.choice([1.0, 1.0, 1.2]),
            logit_bias=random.choice([(), ((5, 3.0),)]),
            bad=random.choice([(), (7, 8)]),
            stops=(2,),
            min_tokens=random.choice([0, 20]),
            seed=random.choice([number, -number, 2**63 + number]),
            logprobs=random.choice([None, 0, 3, 20]),
        )
        prompt = [random.randrange(700) for _ in range(random.randrange(1, 30))]
        output = [random.randrange(700) for _ in range(random.randrange(0, 30))]
        made.append(History(params, prompt, output, choice=random.randrange(3)))
    return made


@pytest.mark.parametrize("size", [700, 4501])
def test_a_sequence_gets_the_same_tokens_alone_and_among_31_others_wherever_it_stands(size: int) -> None:
    for trial in range(2):
        rows = assorted(32, trial)
        logits = torch.stack([logits_of(size, 100 * trial + n, 1.0 + n % 3) for n in range(32)])
        alone = [sample(logits[n : n + 1], [rows[n]])[0] for n in range(32)]
        assert sample(logits, rows) == alone
        order = list(range(32))
        Random(trial).shuffle(order)
        assert sample(logits[order], [rows[n] for n in order]) == [alone[n] for n in order]
        assert sample(logits[:9], rows[:9]) == alone[:9]


def test_rows_of_every_kind_in_one_batch_each_follow_their_own_definition() -> None:
    rows = assorted(64, 5)
    logits = torch.stack([logits_of(700, n) for n in range(64)])
    greedy = 0
    for row, values, got in zip(rows, logits.tolist(), sample(logits, rows), strict=True):
        prompt, output = [], []
        ids, counts = row.had()
        for token, count in zip(ids.tolist(), counts.tolist(), strict=True):
            output += [token] * count
            prompt += [token] if not count else []
        values = adjusted(values, replace(row.params, stops=row.banned, min_tokens=10**9), prompt, output)
        expected = distribution(values, row.params)
        assert got.token in expected
        greedy += len(expected) == 1
    assert greedy > 5


def test_what_is_asked_twice_is_answered_the_same_and_changes_nothing() -> None:
    rows, logits = assorted(16, 9), logits_of(700, 3).repeat(16, 1)
    before = logits.clone()
    assert sample(logits, rows) == sample(logits, rows)
    assert torch.equal(before, logits)


def only(logits: torch.Tensor, row: History) -> int | None:
    return sample(logits.unsqueeze(0), [row])[0].token


def test_penalties_know_the_prompt_from_the_output_also_after_a_new_beginning() -> None:
    logits = torch.tensor([2.0, 1.9, 1.8, -1.0])
    greedy = SamplingParams(temperature=0)
    presence = replace(greedy, presence=0.15)
    assert only(logits, History(presence, [0])) == 0, "the prompt's tokens are not penalised"
    assert only(logits, History(presence, [5], [0])) == 1
    assert only(logits, History(replace(greedy, frequency=0.05), [5], [0])) == 0
    assert only(logits, History(replace(greedy, frequency=0.05), [5], [0, 0, 0])) == 1
    assert only(logits, History(replace(greedy, repetition=1.2), [0])) == 1, "but for repetitions, which they are"
    assert only(logits, History(replace(greedy, repetition=1.2), [0], [1])) == 2


def test_a_history_that_grew_is_one_made_anew() -> None:
    params = SamplingParams(presence=0.5, repetition=1.1, frequency=0.1)
    output = [n * n % 150 for n in range(400)]
    grown = History(params, [1, 2, 3, 3])
    for token in output:
        grown.append(token)
    anew = History(params, [1, 2, 3, 3], output)
    assert [part.tolist() for part in grown.had()] == [part.tolist() for part in anew.had()]
    assert grown.position == anew.position == 400
    assert dict(zip(*[part.tolist() for part in grown.had()], strict=True)) == {1: 8, 2: 0, 3: 0} | Counter(output)


def test_negative_logits_are_penalised_downwards() -> None:
    logits = torch.tensor([-1.0, -1.05])
    assert only(logits, History(SamplingParams(temperature=0, repetition=1.3), [0])) == 1


def test_stop_tokens_come_only_after_min_tokens_others() -> None:
    logits = torch.tensor([1.0, 5.0, 2.0])
    params = SamplingParams(temperature=0, stops=(1,), min_tokens=3)
    assert [only(logits, history(params, position)) for position in range(5)] == [2, 2, 2, 1, 1]


def test_no_bias_brings_back_what_is_banned() -> None:
    logits = torch.tensor([1.0, 0.0])
    assert only(logits, history(SamplingParams(temperature=0, bad=(1,), logit_bias=((1, 100.0),)))) == 0


def test_a_grammar_says_what_may_come_of_its_own_row_only() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.5]] * 2)
    rows = [history(SamplingParams(temperature=0))] * 2
    allowed = {1: torch.tensor([False, False, True])}
    assert [one.token for one in sample(logits, rows, allowed)] == [0, 2]


@pytest.mark.parametrize("value", [-math.inf, math.nan, math.inf])
def test_a_row_that_has_no_token_fails_alone(value: float) -> None:
    good = logits_of(300, 1)
    logits = torch.stack([good, torch.full((300,), value), good, good])
    for params in (SamplingParams(), SamplingParams(temperature=0), SamplingParams(top_p=0.9, logprobs=2)):
        rows = [history(params)] * 3 + [history(replace(params, bad=tuple(range(300))))]
        got = sample(logits, rows)
        assert got[1] == got[3] == Sampled(None, None)
        assert got[0] == got[2] == sample(good.unsqueeze(0), [history(params)])[0]


def test_one_number_that_is_none_fails_its_row() -> None:
    logits = torch.zeros(1, 300)
    logits[0, 17] = math.nan
    assert sample(logits, [history(SamplingParams())])[0].token is None


def test_bfloat16_logits_are_taken_as_they_are() -> None:
    logits = logits_of(3000, 2).bfloat16()
    params = SamplingParams(top_k=50, top_p=0.9)
    assert set(drawn(logits, params, 4000)) <= distribution(logits.tolist(), params).keys()


def test_no_rows_no_tokens_and_rows_must_match() -> None:
    assert sample(torch.zeros(0, 10), []) == []
    with pytest.raises(ValueError, match="2 rows of logits for 1 sequences"):
        sample(torch.zeros(2, 10), [history(SamplingParams())])


def test_choices_and_seeds_and_positions_are_all_different_numbers() -> None:
    logits = torch.zeros(1, 40_000)
    seen = [
        only(logits[0], history(SamplingParams(seed=seed), position, choice))
        for seed in range(5)
        for choice in range(5)
        for position in range(5)
    ]
    assert len(set(seen)) > 120

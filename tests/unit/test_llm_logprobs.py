"""Log probabilities are the model's own, and a prompt's take no memory by its length."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="log probabilities need the extra torch")

from headway.llm.sample.history import History  # noqa: E402
from headway.llm.sample.logprobs import PIECE, logprobs, prompt_logprobs  # noqa: E402
from headway.llm.sample.params import SamplingParams  # noqa: E402
from headway.llm.sample.sampler import sample  # noqa: E402


def some_logits(rows: int, size: int) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(rows)) * 4


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_they_are_the_log_softmax_of_what_the_model_said_whatever_was_done_to_it_later(kind: torch.dtype) -> None:
    logits = some_logits(12, 800).to(kind)
    params = SamplingParams(
        temperature=0.4, top_p=0.9, presence=1.5, logit_bias=((3, 90.0),), bad=(1,), logprobs=5, repetition=2.0
    )
    exact = logits.double().log_softmax(-1)
    for row, got in zip(exact, sample(logits, [History(params, [4], [5, 6])] * 12), strict=True):
        assert got.token == 3
        assert got.logprob is not None and got.logprob.token == 3
        assert got.logprob.logprob == pytest.approx(row[3].item(), abs=1e-4)
        best = row.topk(5)
        assert [value for _, value in got.logprob.top] == pytest.approx(best.values.tolist(), abs=1e-4)
        assert all(abs(row[token].item() - value) < 1e-4 for token, value in got.logprob.top)


def test_each_row_tells_as_many_as_it_was_asked_for() -> None:
    rows = [History(SamplingParams(temperature=0, logprobs=count), [0]) for count in (None, 0, 1, 20)]
    told = [got.logprob for got in sample(some_logits(4, 100), rows)]
    assert told[0] is None
    assert [len(one.top) for one in told[1:] if one is not None] == [0, 1, 20]
    assert told[2] is not None and told[2].top[0] == told[2][:2]


def test_of_equal_ones_the_smaller_id_is_told_first() -> None:
    assert [token for token, _ in logprobs(torch.zeros(1, 3), [2], [3])[0].top] == [0, 1, 2]


@pytest.mark.parametrize("length", [1, PIECE, PIECE + 1, 3 * PIECE - 1])
def test_a_prompt_is_looked_at_in_pieces(length: int) -> None:
    hidden, weights = some_logits(length, 8), some_logits(40, 8)
    seen: list[int] = []

    def head(piece: torch.Tensor) -> torch.Tensor:
        seen.append(len(piece))
        return piece @ weights.T

    targets = [n % 40 for n in range(length - 1)]  # nothing is known yet of what follows the last
    got = prompt_logprobs(hidden, head, targets, 2)
    assert sum(seen) == length - 1 and max(seen, default=0) <= PIECE
    exact = (hidden @ weights.T).double().log_softmax(-1)
    assert [one.token for one in got] == targets
    for row, one in zip(exact, got, strict=False):
        assert one.logprob == pytest.approx(row[one.token].item(), abs=1e-4)
        assert [token for token, _ in one.top] == row.topk(2).indices.tolist()

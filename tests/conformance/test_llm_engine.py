"""The engine's loop: the real planner, runner and sampler, on a small random model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra: pip install headway[llm]")
pytest.importorskip("transformers", reason="needs the extra: pip install headway[torch]")

from headway.core.units import MILLISECOND, SECOND  # noqa: E402
from headway.llm.engine import Engine, Failure, Step  # noqa: E402
from headway.llm.plan.planner import Planner  # noqa: E402
from headway.llm.plan.policy import Admit, PlanPolicy  # noqa: E402
from headway.llm.plan.request import SequenceId, SequenceRequest  # noqa: E402
from headway.llm.plan.step import End  # noqa: E402
from headway.llm.run.runner import Runner  # noqa: E402
from headway.llm.sample.params import ParamError, SamplingParams  # noqa: E402
from tests import llm_models  # noqa: E402

BLOCK = 4
PROMPT = llm_models.prompts(1, 30)[0]
POLICY = PlanPolicy(max_sequences=32, max_step_tokens=96, tile=8, max_context=256, target_itl=10 * SECOND)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    folder: Path = tmp_path_factory.mktemp("llama")
    llm_models.make("llama", folder)
    yield Runner.load(folder, "float32", compiled=False)
    torch.set_num_threads(before)


def engine(runner: Runner, blocks: int = 800, policy: PlanPolicy = POLICY) -> Engine:
    runner.allocate(blocks, BLOCK)
    ticks = count(1)
    return Engine(Planner(policy, blocks, BLOCK), runner, lambda: next(ticks) * MILLISECOND)


def ask(engine: Engine, id: int, params: SamplingParams, prompt: Sequence[int] = PROMPT, tokens: int = 12) -> None:
    assert engine.add(SequenceRequest(id, f"t{id % 3}", list(prompt), tokens), params) is None


def play(engine: Engine) -> dict[SequenceId, list[int]]:
    """All of it; positions must come one after the other."""
    outputs: dict[SequenceId, list[int]] = {}
    while not engine.is_idle:
        for token in engine.step().tokens:
            output = outputs.setdefault(token.id, [])
            assert token.position == len(output)
            output.append(token.token)
    engine.planner.check()
    assert engine.planner.state.pool.in_use == 0
    assert not engine._followed
    return outputs


MIXED = (
    SamplingParams(temperature=0.9, seed=5),
    SamplingParams(temperature=1.3, top_k=20, seed=5),
    SamplingParams(temperature=0.8, top_p=0.9, seed=6),
    SamplingParams(temperature=1.0, min_p=0.05, presence=0.5, frequency=0.3, seed=7),
    SamplingParams(temperature=0, repetition=1.3),
)


@pytest.mark.parametrize("number", range(len(MIXED)))
def test_a_request_has_the_same_tokens_alone_and_among_31_others(runner: Runner, number: int) -> None:
    alone = engine(runner)
    ask(alone, 1, MIXED[number])
    expected = play(alone)[SequenceId(1)]
    among = engine(runner)
    for other in range(31):
        if other == 17:
            ask(among, 1, MIXED[number])
        prompt = llm_models.prompts(other + 2, 40)[-1]
        ask(among, 100 + other, SamplingParams(temperature=1.0, seed=other), prompt)
    assert play(among)[SequenceId(1)] == expected


def test_and_the_same_though_it_lost_its_blocks(runner: Runner) -> None:
    outputs = []
    for blocks in (800, 40):
        policy = PlanPolicy(max_sequences=8, max_step_tokens=96, tile=8, max_context=256, admit=Admit.UNLIMITED)
        one = engine(runner, blocks, policy)
        for id in range(8):
            ask(one, id, MIXED[id % len(MIXED)], llm_models.prompts(id + 1, 20)[-1], tokens=30)
        outputs.append(play(one))
        preempted = one.planner.state.counts.preemptions["growth"]
        assert (preempted > 0) is (blocks == 40)
    assert outputs[0] == outputs[1]


def test_choices_differ_and_do_so_always_alike(runner: Runner) -> None:
    outputs = []
    for _ in range(2):
        one = engine(runner)
        request = SequenceRequest(1, "t", PROMPT, 12, choices=3)
        assert one.add(request, SamplingParams(temperature=1.5, seed=9)) is None
        outputs.append(play(one))
    assert outputs[0] == outputs[1]
    assert len({tuple(output) for output in outputs[0].values()}) == 3


def test_a_stop_token_ends_it_but_not_before_so_many(runner: Runner) -> None:
    greedy = engine(runner)
    ask(greedy, 1, SamplingParams(temperature=0))
    free = play(greedy)[SequenceId(1)]
    for least in (0, 6):
        one = engine(runner)
        ask(one, 1, SamplingParams(temperature=0, stops=(free[2],), min_tokens=least))
        output = play(one)[SequenceId(1)]
        if least == 0:
            assert output == free[: free.index(free[2]) + 1]
        else:
            assert free[2] not in output[:6]
            assert len(output) > 6


def test_one_of_which_no_token_can_come_fails_alone(runner: Runner) -> None:
    size = runner.config.vocabulary
    one = engine(runner)
    ask(one, 1, SamplingParams(temperature=0))
    ask(one, 2, SamplingParams(temperature=0, bad=tuple(range(size))))
    steps: list[Step] = []
    while not one.is_idle:
        steps.append(one.step())
    failed = [failure for step in steps for failure in step.failed]
    assert [failure.id for failure in failed] == [SequenceId(2)]
    assert isinstance(failed[0], Failure)
    tokens = [token for step in steps for token in step.tokens]
    assert [token.id.request for token in tokens] == [1] * 12
    assert tokens[-1].end is End.LENGTH
    assert one.planner.state.pool.in_use == 0


def test_an_abort_frees_all_blocks_at_once(runner: Runner) -> None:
    one = engine(runner)
    request = SequenceRequest(1, "t", PROMPT, 50, choices=2)
    assert one.add(request, SamplingParams(temperature=1.0)) is None
    ask(one, 2, SamplingParams(temperature=0), tokens=3)
    for _ in range(3):
        one.step()
    assert one.abort(1)
    assert not one.abort(1)
    assert set(play(one)) <= {SequenceId(2)}


def test_a_request_that_is_not_taken_leaves_nothing(runner: Runner) -> None:
    one = engine(runner, blocks=8)
    refused = one.add(SequenceRequest(1, "t", [1] * 64, 4), SamplingParams())
    assert refused is not None
    assert refused.code == "context_length_exceeded"
    with pytest.raises(ParamError, match="vocabulary"):
        one.add(SequenceRequest(2, "t", [1], 4), SamplingParams(bad=(runner.config.vocabulary,)))
    assert one.is_idle
    assert not one._followed


def test_log_probabilities_are_the_models(runner: Runner) -> None:
    one = engine(runner)
    ask(one, 1, SamplingParams(temperature=0, logprobs=2), tokens=4)
    tokens = [token for _ in range(20) for token in one.step().tokens]
    assert len(tokens) == 4
    for token in tokens:
        assert token.logprob is not None
        assert token.logprob.top[0] == (token.token, pytest.approx(token.logprob.logprob))
        assert token.logprob.logprob <= 0

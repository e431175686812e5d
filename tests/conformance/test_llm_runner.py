"""The runner against transformers, token by token, in float32, on random models of each family."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra: pip install headway[llm]")
pytest.importorskip("transformers", reason="needs the extra: pip install headway[torch]")

from headway.llm.plan.planner import Planner  # noqa: E402
from headway.llm.plan.policy import Admit, PlanPolicy  # noqa: E402
from headway.llm.plan.request import SequenceId, SequenceRequest  # noqa: E402
from headway.llm.plan.step import Row, StepPlan  # noqa: E402
from headway.llm.run import kernels  # noqa: E402
from headway.llm.run.runner import Runner  # noqa: E402
from tests import llm_models  # noqa: E402

TOLERANCE = 1e-4
BLOCK = 4


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """The models are small, and other tests want the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def compiled(wanted: bool) -> bool:
    """Skips where they are wanted and cannot be had."""
    if wanted and kernels.kernels() is None:
        pytest.skip("needs a C++ compiler")
    return wanted


@pytest.fixture(scope="module", params=llm_models.KINDS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    return llm_models.make(request.param, folder), folder


@pytest.fixture(scope="module", params=[False, True], ids=["torch", "compiled"])
def pair(request: pytest.FixtureRequest, made: tuple[Any, Path]) -> tuple[Any, Runner]:
    """transformers' model, and ours of the same weights."""
    return made[0], Runner.load(made[1], "float32", compiled=compiled(request.param))


@pytest.fixture(scope="module", params=[False, True], ids=["torch", "compiled"])
def llama(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Runner]:
    folder = tmp_path_factory.mktemp("llama")
    model = llm_models.make("llama", folder)
    return model, Runner.load(folder, "float32", compiled=compiled(request.param))


@pytest.mark.parametrize("chunk", [1, 3, 16, 512])
def test_a_sequence_alone_is_what_transformers_says_whatever_the_chunks(pair: tuple[Any, Runner], chunk: int) -> None:
    model, runner = pair
    runner.allocate(200, BLOCK)
    prompt = llm_models.prompts(2, 600 if chunk == 512 else 50)[1]
    table = [(7 * number + 3) % 200 for number in range(160)]  # no block is where one would guess
    outputs: list[int] = []
    logits = []
    for plan in llm_models.by_hand(prompt, chunk, 12, BLOCK, table):
        results, by_id = llm_models.choose(runner, plan)
        outputs.extend(token for token in results if token is not None)
        logits.extend(by_id.values())
    assert len(outputs) == 12
    assert llm_models.differ(model, prompt, outputs, logits) < TOLERANCE


@pytest.mark.parametrize("ahead", [False, True], ids=["one plan at a time", "the next planned ahead"])
def test_sequences_in_one_batch_are_what_transformers_says_of_each_alone(pair: tuple[Any, Runner], ahead: bool) -> None:
    model, runner = pair
    prompts = llm_models.prompts(9, 60)
    policy = PlanPolicy(max_sequences=6, max_step_tokens=40, tile=8, max_context=256, target_itl=10**9)
    outputs, plans = run(runner, model, prompts, policy, blocks=200, ahead=ahead)
    assert all(len(output) == 10 for output in outputs)
    mixed = [plan for plan in plans if plan.decodes and plan.prefill]
    assert mixed and max(len(plan.rows) for plan in plans) > 3


def test_sequences_that_lost_their_blocks_go_on_as_if_they_had_not(pair: tuple[Any, Runner]) -> None:
    model, runner = pair
    prompts = llm_models.prompts(6, 30)
    policy = PlanPolicy(max_sequences=6, max_step_tokens=64, tile=8, max_context=256, admit=Admit.UNLIMITED)
    outputs, plans = run(runner, model, prompts, policy, blocks=22, tokens=24)
    assert all(len(output) == 24 for output in outputs)
    assert sum(len(plan.preempted) for plan in plans) > 0


def run(
    runner: Runner,
    model: Any,
    prompts: list[list[int]],
    policy: PlanPolicy,
    blocks: int,
    ahead: bool = True,
    tokens: int = 10,
) -> tuple[list[list[int]], list[StepPlan]]:
    """All prompts at once; outputs in their order, each compared with transformers'."""
    runner.allocate(blocks, BLOCK)
    planner = Planner(policy, blocks, BLOCK)
    for number, prompt in enumerate(prompts):
        assert planner.add(SequenceRequest(number, f"t{number % 2}", prompt, tokens), now=0) is None
    steps = llm_models.Steps(runner, planner, ahead)
    steps.run()
    for number, prompt in enumerate(prompts):
        id = SequenceId(number)
        assert llm_models.differ(model, prompt, steps.outputs[id], steps.logits[id]) < TOLERANCE
    return [steps.outputs[SequenceId(number)] for number in range(len(prompts))], steps.plans


def test_choices_share_the_blocks_of_their_prompt_and_a_later_request_its_prefix(llama: tuple[Any, Runner]) -> None:
    model, runner = llama
    runner.allocate(100, BLOCK)
    planner = Planner(PlanPolicy(max_sequences=8, max_step_tokens=64), 100, BLOCK)
    prompt = llm_models.prompts(2, 21)[1]
    steps = llm_models.Steps(runner, planner)
    planner.add(SequenceRequest(1, "t", prompt, 5, choices=2), now=0)
    steps.run()
    planner.add(SequenceRequest(2, "t", [*prompt, 5, 6, 7], 5), now=steps.now)
    steps.run()
    assert steps.plans[-1].rows == [] and planner.state.counts.computed < 2 * len(prompt) + 24
    assert llm_models.differ(model, prompt, steps.outputs[SequenceId(1, 1)], steps.logits[SequenceId(1, 1)]) < TOLERANCE
    assert (
        llm_models.differ(model, [*prompt, 5, 6, 7], steps.outputs[SequenceId(2)], steps.logits[SequenceId(2)]) < 1e-4
    )


def test_states_of_a_whole_prompt_make_logits_of_each_position(llama: tuple[Any, Runner]) -> None:
    model, runner = llama
    runner.allocate(20, BLOCK)
    prompt, other = llm_models.prompts(3, 30)[1:]
    table, second = list(range(8)), list(range(8, 16))
    rows = [
        Row(SequenceId(2), 0, 0, len(other), other, second, False),
        Row(SequenceId(1), 0, 0, len(prompt), prompt, table, True),
    ]
    output = runner.step(StepPlan(1, rows), scored=[1])
    logits = torch.cat([runner.logits(piece) for piece in output.states[1].split(7)])
    assert (logits - llm_models.said(model, prompt)).abs().max() < TOLERANCE
    assert (logits[-1] - output.logits[0]).abs().max() < TOLERANCE and output.rows == [1]


def test_what_is_not_a_number_in_the_blocks_of_one_sequence_does_not_reach_others(llama: tuple[Any, Runner]) -> None:
    model, runner = llama
    runner.allocate(40, BLOCK)
    for layer in (*runner._kv.keys, *runner._kv.values):  # type: ignore[union-attr]
        layer.fill_(float("nan"))
    prompts = llm_models.prompts(3, 40)
    tables = [[39], list(range(11)), list(range(11, 36))]
    first = [Row(SequenceId(n), 0, 0, len(prompt), prompt, tables[n], True) for n, prompt in enumerate(prompts)]
    results, _ = llm_models.choose(runner, StepPlan(1, first))
    second = [Row(SequenceId(n), 0, len(prompt), 1, [], tables[n], True) for n, prompt in enumerate(prompts)]
    more, _ = llm_models.choose(runner, StepPlan(2, second))
    for n, prompt in enumerate(prompts):
        token = results[n]
        assert token is not None
        assert more[n] == int(llm_models.said(model, [*prompt, token])[-1].argmax())


def test_a_plan_that_contradicts_itself_is_refused(llama: tuple[Any, Runner]) -> None:
    _, runner = llama
    runner.allocate(4, BLOCK)
    with pytest.raises(ValueError, match="none from the step before"):
        runner.step(StepPlan(1, [Row(SequenceId(1), 0, 1, 1, [], [0], True)]))
    with pytest.raises(ValueError, match="5 tokens from 0 in 1 blocks of 4"):
        runner.step(StepPlan(1, [Row(SequenceId(1), 0, 0, 5, [1] * 5, [0], True)]))
    runner.step(StepPlan(1, [Row(SequenceId(1), 0, 0, 1, [1], [0], True)]))
    with pytest.raises(ValueError, match="2 tokens were chosen for 1 rows"):
        runner.sampled([1, 2])
    runner.sampled([3])
    with pytest.raises(ValueError, match="none from the step before"):
        runner.step(StepPlan(2, [Row(SequenceId(1), 1, 1, 1, [], [0], True)]))  # another attempt's


def test_a_plan_without_rows_brings_nothing(llama: tuple[Any, Runner]) -> None:
    _, runner = llama
    runner.allocate(4, BLOCK)
    output = runner.step(StepPlan(0, []))
    assert output.logits.shape == (0, llm_models.VOCABULARY) and output.rows == []


def test_memory_is_told_in_blocks(llama: tuple[Any, Runner]) -> None:
    _, runner = llama
    assert runner.block_bytes(16) == 2 * 3 * 2 * 16 * 16 * 4
    assert runner.blocks_for(1 << 20, 16) == (1 << 20) // runner.block_bytes(16)


def test_bfloat16_is_as_close_to_float32_as_transformers_is(tmp_path: Path) -> None:
    model = llm_models.make("smollm2", tmp_path)
    runner = Runner.load(tmp_path, "bfloat16")
    runner.allocate(20, BLOCK)
    prompt = llm_models.prompts(2, 30)[1]
    output = runner.step(StepPlan(1, [Row(SequenceId(1), 0, 0, 30, prompt, list(range(8)), True)]))
    assert output.logits.dtype == torch.float32
    expected = llm_models.said(model, prompt)[-1]
    theirs = llm_models.said(model.to(torch.bfloat16), prompt)[-1]
    assert (output.logits[0] - expected).norm() < 1.5 * (theirs - expected).norm()

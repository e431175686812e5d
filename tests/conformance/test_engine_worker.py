"""A worker process that is an engine, spoken to by hand: a small random model, the real loop."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra: pip install headway[llm]")
transformers = pytest.importorskip("transformers", reason="needs the extra: pip install headway[torch]")

from headway.config.settings import Language, ModelSettings, WarmUp  # noqa: E402
from headway.core.outcomes import Outcome  # noqa: E402
from headway.llm.sample.params import SamplingParams  # noqa: E402
from headway.wire.engine import Counters, GiveBack, Start, Stepped  # noqa: E402
from headway.wire.generation import Generation, PromptScores, Token  # noqa: E402
from headway.wire.messages import Abort, Stop  # noqa: E402
from tests import llm_models  # noqa: E402
from tests.worker_process import WorkerProcess, ready, worker_process  # noqa: E402

LANGUAGE = Language(dtype="float32", memory_mb=4, block_size=4, max_step_tokens=64, tile=8)
SETTINGS = ModelSettings(executor="llm", max_sequences=4, language=LANGUAGE, warm_up=WarmUp(enabled=False))
GREEDY = SamplingParams(temperature=0)
PROMPT = [token for prompt in llm_models.prompts(30, 30) for token in prompt][:30]
ABORTS = int(os.environ.get("ABORTS", "300"))
"""In the suite; with 10,000 it takes minutes."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "llama" / "1"
    folder.mkdir(parents=True)
    llm_models.make("llama", folder)
    return folder


@pytest.fixture
def engine(model: Path, tmp_path: Path) -> Iterator[WorkerProcess]:
    with worker_process(tmp_path) as worker:
        ready(worker, model, "llm", SETTINGS)
        yield worker


def start(engine: WorkerProcess, request: int, generation: Generation, attempt: int = 1, **others: Any) -> None:
    fields = {"tenant": "t", "priority": 1, "counter": 0, "paid": 0, "left": 0, **others}
    engine.send(Start(engine.worker, request, attempt, generation=generation, **fields))


class Told:
    """All that it says until so many requests are over."""

    def __init__(self, engine: WorkerProcess, requests: int) -> None:
        self.results: dict[int, list[Token | PromptScores]] = {}
        self.failed: dict[int, tuple[Outcome, str]] = {}
        self.finished: list[int] = []
        number = 0
        following: dict[int, int] = {}
        while len(self.finished) + len(self.failed) < requests:
            message, _ = engine.receive()
            assert isinstance(message, Stepped)
            assert message.report.number == number + 1 or number == 0
            self.report = message.report
            number = message.report.number
            for event, values in zip(message.emitted, message.values, strict=True):
                results = self.results.setdefault(event.request, [])
                assert event.first == following.get(event.request, event.first)
                following[event.request] = event.first + event.count
                results += values
            self.finished += [event.request for event in message.finished]
            self.failed |= {event.request: (event.outcome, event.detail) for event in message.failed}

    def tokens(self, request: int, choice: int = 0) -> list[int]:
        tokens = [r for r in self.results[request] if isinstance(r, Token) and r.choice == choice]
        assert [token.position for token in tokens] == list(range(len(tokens)))
        return [token.token for token in tokens]


@pytest.fixture(scope="module")
def whole(model: Path) -> list[int]:
    """As transformers goes on after PROMPT."""
    reference = transformers.AutoModelForCausalLM.from_pretrained(model, local_files_only=True)
    tokens = list(PROMPT)
    for _ in range(12):
        tokens.append(int(llm_models.said(reference, tokens)[-1].argmax()))
    return tokens[len(PROMPT) :]


def test_it_says_what_it_is(model: Path, tmp_path: Path) -> None:
    with worker_process(tmp_path) as worker:
        told = ready(worker, model, "llm", SETTINGS)
    language = told.meta.language
    assert language is not None
    assert (language.vocabulary, language.source) == (llm_models.VOCABULARY, str(model))
    assert told.capacity.sequences == 4
    assert told.capacity.block_size == 4
    assert told.capacity.kv_blocks * 4 == language.pool
    assert told.capacity.max_context == language.context == 1024
    assert told.measurements


def test_tokens_are_those_of_the_model_whoever_is_beside(engine: WorkerProcess, whole: list[int]) -> None:
    for request in range(1, 7):
        start(engine, request, Generation(PROMPT[request - 1 :], 12, GREEDY))
    told = Told(engine, 6)
    assert told.tokens(1) == whole
    assert sorted(told.finished) == [1, 2, 3, 4, 5, 6]
    ends = [result.end for results in told.results.values() for result in results[-1:] if isinstance(result, Token)]
    assert ends == ["length"] * 6
    assert told.report.heard == 6
    assert told.report.sequences == 4
    assert told.report.waiting == ()
    assert sum(served.service for served in told.report.served) >= 0


def test_what_was_produced_already_is_not_told_again(engine: WorkerProcess, whole: list[int]) -> None:
    start(engine, 1, Generation(PROMPT, 12, GREEDY), output=tuple(whole[:5]))
    message, _ = engine.receive()
    while not message.emitted:
        message, _ = engine.receive()
    (event,), (values,) = message.emitted, message.values
    assert event.first == 5
    assert values[0].position == 5
    assert values[0].token == whole[5]


def test_an_end_and_a_stop_token(engine: WorkerProcess, whole: list[int]) -> None:
    stop = next(token for token in whole if whole.index(token) > 1)
    start(engine, 1, Generation(PROMPT, 12, SamplingParams(temperature=0, stops=(stop,))))
    told = Told(engine, 1)
    assert told.tokens(1) == whole[: whole.index(stop) + 1]
    last = told.results[1][-1]
    assert isinstance(last, Token)
    assert last.end == "stop"


def test_choices_are_numbered_and_told_together(engine: WorkerProcess) -> None:
    start(engine, 1, Generation(PROMPT, 5, SamplingParams(seed=3, logprobs=2), choices=3))
    told = Told(engine, 1)
    assert [len(told.tokens(1, choice)) for choice in range(3)] == [5, 5, 5]
    assert len({tuple(told.tokens(1, choice)) for choice in range(3)}) == 3
    first = told.results[1][0]
    assert isinstance(first, Token)
    assert first.logprob is not None
    assert len(first.top) == 2


def test_log_probabilities_of_a_prompt_come_in_pieces_and_once(engine: WorkerProcess) -> None:
    prompt = [token for _ in range(5) for token in PROMPT]
    start(engine, 1, Generation(prompt, 2, GREEDY, prompt_logprobs=1))
    told = Told(engine, 1)
    pieces = [result for result in told.results[1] if isinstance(result, PromptScores)]
    assert len(pieces) > 1
    positions = [piece.start + n for piece in pieces for n in range(len(piece.scores))]
    assert positions == list(range(1, len(prompt)))
    assert isinstance(told.results[1][len(pieces)], Token)
    assert all(value <= 0 and len(top) == 1 for piece in pieces for value, top in piece.scores)


def test_what_was_found_in_the_cache_is_told_with_the_first_token(engine: WorkerProcess) -> None:
    found = []
    for request in (1, 2):
        start(engine, request, Generation(PROMPT, 1, GREEDY, choices=2))
        first = next(r for r in Told(engine, 1).results[request] if isinstance(r, Token) and r.choice == 0)
        found.append(first.cached)
    assert found == [0, len(PROMPT) - len(PROMPT) % LANGUAGE.block_size]


def test_an_abort_frees_all_and_is_told(engine: WorkerProcess) -> None:
    start(engine, 1, Generation(PROMPT, 900, GREEDY))
    start(engine, 2, Generation(PROMPT[3:], 4, GREEDY))
    while not engine.receive()[0].emitted:
        pass
    engine.send(Abort(engine.worker, 1, 1))
    engine.send(Abort(engine.worker, 1, 1))
    told = Told(engine, 2)
    assert sorted(told.finished) == [1, 2]
    assert (told.report.sequences, told.report.waiting) == (4, ())


def test_what_waits_is_given_back_and_what_runs_is_not(engine: WorkerProcess) -> None:
    for request in range(1, 6):
        start(engine, request, Generation(PROMPT[request:], 300, GREEDY))
    message, _ = engine.receive()
    while not message.emitted:
        message, _ = engine.receive()
    engine.send(GiveBack(engine.worker, 1, 1))
    engine.send(GiveBack(engine.worker, 5, 1))
    engine.send(Counters(engine.worker, message.report.number, (("t", 5),)))
    while not message.returned:
        message, _ = engine.receive()
    (returned,) = message.returned
    assert (returned.request, returned.attempt, returned.paid) == (5, 1, 0)
    assert message.report.heard == 7


@pytest.mark.parametrize(
    ("generation", "words"),
    [
        (Generation([1, 2, llm_models.VOCABULARY], 5, GREEDY), "199"),
        (Generation(PROMPT, 5, SamplingParams(logit_bias=((500, 1.0),))), "500"),
        (Generation([5] * 1200, 5, GREEDY), "1200"),
    ],
)
def test_what_cannot_be_is_refused_with_the_numbers(engine: WorkerProcess, generation: Generation, words: str) -> None:
    start(engine, 1, generation)
    start(engine, 2, Generation(PROMPT, 3, GREEDY))
    told = Told(engine, 2)
    outcome, detail = told.failed[1]
    assert outcome in (Outcome.INVALID_INPUT, Outcome.TOO_LARGE)
    assert words in detail
    assert told.finished == [2]


def test_a_form_without_a_tokenizer_fails_its_own_request_alone(engine: WorkerProcess) -> None:
    start(engine, 1, Generation(PROMPT, 5, GREEDY, form=("regex", "x")))
    start(engine, 2, Generation(PROMPT, 3, GREEDY))
    told = Told(engine, 2)
    assert told.failed[1][0] is Outcome.MODEL_ERROR
    assert told.finished == [2]


def test_told_to_stop_it_finishes_what_it_has(engine: WorkerProcess) -> None:
    start(engine, 1, Generation(PROMPT, 30, GREEDY))
    engine.send(Stop(engine.worker))
    assert len(Told(engine, 1).tokens(1)) == 30
    assert engine.process.wait(30) == 0


def aborted_at_random(engine: WorkerProcess, kv_blocks: int, count: int, seed: int) -> None:
    """Up to eight at a time, each aborted a few messages after it came, before it, or when it is over."""
    rng = random.Random(seed)
    alive: dict[int, int] = {}
    begun, number = 0, 0
    over: dict[int, None] = {}
    while len(over) < count:
        while begun < count and len(alive) < 8:
            begun += 1
            prompt = [rng.randrange(llm_models.VOCABULARY) for _ in range(rng.randrange(1, 80))]
            choices = rng.choice((1, 1, 1, 3))
            start(engine, begun, Generation(prompt, rng.randrange(1, 60), SamplingParams(seed=begun), choices=choices))
            alive[begun] = rng.randrange(0, 12)
        for request, left in list(alive.items()):
            alive[request] = left - 1
            if left == 0:
                engine.send(Abort(engine.worker, request, 1))
        message, _ = engine.receive()
        number += 1
        assert message.report.number == number, "none is lost, and they come in order"
        for event in (*message.finished, *message.failed):
            assert event.request not in over, "it is over once"
            over[event.request] = None
            del alive[event.request]
        for event in message.emitted:
            assert event.request not in over or event.request in [e.request for e in message.finished]
    start(engine, count + 1, Generation(PROMPT, 1, GREEDY))
    report = Told(engine, 1).report
    assert (report.sequences, report.kv_blocks, report.prefilling, report.waiting) == (4, kv_blocks, 0, ())
    assert sum(served.owed for served in report.served) == 0


def test_whatever_is_aborted_whenever_nothing_is_left_of_it(model: Path, tmp_path: Path) -> None:
    with worker_process(tmp_path) as engine:
        capacity = ready(engine, model, "llm", SETTINGS).capacity
        aborted_at_random(engine, capacity.kv_blocks, ABORTS, seed=1)

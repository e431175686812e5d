"""The step times of the presets against the figures that they claim to follow."""

from __future__ import annotations

import pytest

from headway.core.units import MILLISECOND, SECOND
from headway.llm.plan.step_time import pairs
from headway.sim.llm.presets import BLOCK_SIZE, PRESETS


def decode_ms(name: str, rows: int, context: int) -> float:
    """context: of each row."""
    return PRESETS[name].steps.predict(0, rows, rows * context, 0) / MILLISECOND


def prefill_ms(name: str, tokens: int) -> float:
    return PRESETS[name].steps.predict(tokens, 0, tokens, pairs(0, tokens)) / MILLISECOND


@pytest.mark.parametrize(
    ("rows", "context", "tokens_per_s"), [(1, 64, 54), (8, 64, 449), (32, 64, 1248), (64, 64, 1871), (64, 1024, 412)]
)
def test_the_cpu_decodes_as_measured(rows: int, context: int, tokens_per_s: float) -> None:
    assert rows * 1000 / decode_ms("cpu-smollm2", rows, context) == pytest.approx(tokens_per_s, rel=0.09)


@pytest.mark.parametrize(("chunk", "tokens_per_s", "within"), [(64, 2647, 0.2), (512, 3830, 0.06)])
def test_the_cpu_prefills_as_measured(chunk: int, tokens_per_s: float, within: float) -> None:
    assert chunk * 1000 / prefill_ms("cpu-smollm2", chunk) == pytest.approx(tokens_per_s, rel=within)


def test_a_decode_step_of_an_a100_takes_what_sarathis_limit_implies() -> None:
    assert decode_ms("a100-8b", 32, 4096) == pytest.approx(20, rel=0.2)


@pytest.mark.parametrize(("name", "measured"), [("a100x8-70b", 185), ("h100x8-70b", 95)])
def test_a_first_token_of_a_70b_model_takes_what_splitwise_measured(name: str, measured: float) -> None:
    assert prefill_ms(name, 1500) == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize(
    ("name", "bytes_per_token", "gib"),
    [("cpu-smollm2", 23_040, 2.0), ("a100-8b", 131_072, 50.2), ("a100x4-70b", 327_680, 129.3)],
)
def test_the_pool_is_what_the_memory_leaves(name: str, bytes_per_token: int, gib: float) -> None:
    assert PRESETS[name].blocks * BLOCK_SIZE * bytes_per_token / 2**30 == pytest.approx(gib, rel=0.01)


def test_a_newer_device_is_faster_and_more_of_them_are_too() -> None:
    capacity = {name: preset.capacity(1155, 211) for name, preset in PRESETS.items()}
    assert capacity["cpu-smollm2"] < capacity["a100-8b"] < capacity["h100-8b"]
    assert capacity["a100x4-70b"] < capacity["a100x8-70b"] < capacity["h100x8-70b"]


def test_the_capacity_is_no_more_than_prefill_alone_allows_and_falls_with_the_lengths() -> None:
    preset = PRESETS["a100-8b"]
    assert preset.capacity(1000, 100) < SECOND / (1000 * preset.steps.prefill)
    assert preset.capacity(1000, 100) > preset.capacity(2000, 100) > preset.capacity(2000, 400)

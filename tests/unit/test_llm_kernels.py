"""The compiled kernels against what torch has, at sizes that no model of the tests has; and what is said where they
cannot be built."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra: pip install headway[llm]")

from headway.llm.plan.request import SequenceId  # noqa: E402
from headway.llm.plan.step import Row, StepPlan  # noqa: E402
from headway.llm.run import kernels, linear, quantised  # noqa: E402
from headway.llm.run.batch import Batch, batch_of  # noqa: E402
from headway.llm.run.config import ModelConfig, Rope  # noqa: E402
from headway.llm.run.fast_ops import FastOps  # noqa: E402
from headway.llm.run.kv import KeysAndValues  # noqa: E402
from headway.llm.run.ops import Kind, Ops  # noqa: E402

CLOSE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
"""Largest distance of results of size 1."""


@pytest.fixture(autouse=True)
def a_compiler() -> None:
    if kernels.kernels() is None:
        pytest.skip("needs a C++ compiler")


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def config(heads: int, kv_heads: int, size: int, activation: str = "silu") -> ModelConfig:
    return ModelConfig(
        *("llama", 10, 64, 64, 1, heads, kv_heads, size, 1e-5, 4096, (Rope(10_000.0),), (0,), 0.9 * size**-0.5),
        activation=activation,
    )


def both(c: ModelConfig, dtype: Any) -> tuple[Ops, FastOps]:
    found = kernels.kernels()
    assert found is not None
    return Ops(c), FastOps(c, found, dtype)


def filled(c: ModelConfig, blocks: int, block_size: int, dtype: Any) -> KeysAndValues:
    torch.manual_seed(5)
    kv = KeysAndValues(c, blocks, block_size, dtype)
    for layer in (*kv.keys, *kv.values):
        layer.copy_(torch.randn(layer.shape))
    return kv


def rows(lengths: list[int], sizes: list[int], block_size: int, blocks: int) -> StepPlan:
    """Sequences of these lengths, of which the last `size` tokens are in the step. Their blocks lie anywhere."""
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(3)).tolist()
    made = []
    for number, (length, size) in enumerate(zip(lengths, sizes, strict=True)):
        table = [order.pop() for _ in range(-(-length // block_size))]
        made.append(Row(SequenceId(number), 0, length - size, size, [1] * size, table, True))
    return StepPlan(1, made)


def attended(ops: Ops, plan: StepPlan, kv: KeysAndValues, qkv: Any, norms: Any, window: int) -> tuple[Any, Batch]:
    batch = batch_of(plan, kv.block_size, {}, ops.single)
    kind = Kind(1.0 / 100.0 ** torch.linspace(0, 1, ops.config.head_size // 2), window)
    return ops.attend(qkv.clone(), norms, batch, ops.seen(batch, kind), kind, kv, 0), batch


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    "heads, kv_heads, size, block_size, window",
    [
        (9, 3, 64, 16, 0),
        (4, 4, 128, 32, 0),
        (8, 1, 256, 16, 40),
        (12, 1, 20, 5, 0),
        (10, 2, 2, 1, 0),
        (14, 2, 80, 16, 600),
        (6, 1, 34, 24, 3),
        (28, 4, 96, 7, 0),
    ],
)
def test_attention_is_that_of_torch(
    heads: int, kv_heads: int, size: int, block_size: int, window: int, dtype: Any, threads: int
) -> None:
    c = config(heads, kv_heads, size)
    lengths, sizes = [1, 1300, 17, 512, 513, 90, 33, 400], [1, 1, 1, 1, 1, 8, 20, 300]
    blocks = sum(-(-length // block_size) for length in lengths)
    plan = rows(lengths, sizes, block_size, blocks)
    torch.manual_seed(1)
    qkv = torch.randn(sum(sizes), (heads + 2 * kv_heads) * size).to(dtype)
    norms = (torch.rand(size) + 0.5, torch.rand(size) + 0.5) if heads == 9 else None
    found, stores = [], []
    for ops in both(c, dtype):
        kv = filled(c, blocks, block_size, dtype)
        out, _ = attended(ops, plan, kv, qkv, norms, window)
        found.append(out.float())
        stores.append(torch.stack([kv.keys[0], kv.values[0]]).float())
    assert (stores[0] - stores[1]).abs().max() < 2 * CLOSE[dtype]
    assert (found[0] - found[1]).abs().max() < CLOSE[dtype]
    assert found[0].abs().max() > 0.5


def test_a_sequence_has_the_same_bits_whatever_its_company(threads: int) -> None:
    c = config(9, 3, 64)
    kv = filled(c, 200, 16, torch.bfloat16)
    torch.manual_seed(1)
    qkv = torch.randn(5, 15 * 64).to(torch.bfloat16)
    plan = rows([700, 33, 5, 1030, 64], [1] * 5, 16, 200)
    ops = both(c, torch.bfloat16)[1]
    together, _ = attended(ops, plan, kv, qkv, None, 0)
    for number, row in enumerate(plan.rows):
        alone, _ = attended(ops, StepPlan(1, [row]), kv, qkv[number : number + 1], None, 0)
        assert torch.equal(alone[0], together[number])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("tokens, width", [(1, 7), (3, 576), (70, 1000)])
def test_norm_and_activation_are_those_of_torch(tokens: int, width: int, dtype: Any, threads: int) -> None:
    torch.manual_seed(2)
    weight, x, states = (
        torch.rand(width),
        torch.randn(tokens, width).to(dtype),
        9 * torch.randn(tokens, width).to(dtype),
    )
    ours, theirs = [], []
    for results, ops in zip((theirs, ours), both(config(2, 1, 8), dtype), strict=True):
        held = states.clone()
        results += [ops.norm(states, weight), ops.add_norm(held, x, weight), held]
    for activation in ("silu", "gelu_tanh"):
        pair = torch.cat((12 * torch.randn(tokens, width), torch.randn(tokens, width)), -1).to(dtype)
        for results, ops in zip((theirs, ours), both(config(2, 1, 8, activation), dtype), strict=True):
            results.append(ops.gated(pair))
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.float() - other.float()).abs().max() <= CLOSE[dtype] * max(1.0, float(other.abs().max()))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_a_number_stays_that(value: float) -> None:
    for dtype in CLOSE:
        states = torch.tensor([[1.0, value, 2.0, 3.0]]).to(dtype)
        assert both(config(2, 1, 8), dtype)[1].norm(states, torch.ones(4)).isnan().any()


def test_packed_weights_give_what_plain_ones_do() -> None:
    torch.manual_seed(4)
    make = linear.maker(torch.bfloat16)
    assert make is linear.packed and linear.maker(torch.float32) is linear.plain
    for out, width, tokens in ((96, 64, 1), (33, 72, 9), (500, 80, 70)):
        weight, bias, x = (torch.randn(*size).bfloat16() for size in ((out, width), (out,), (tokens, width)))
        for b in (None, bias):
            expected = linear.plain(weight, b)(x).float()
            assert (make(weight, b)(x).float() - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_quantised_weights_are_what_they_unpack_to(kind: str, threads: int) -> None:
    gguf = pytest.importorskip("gguf", reason="needs the extra: pip install headway[llm]")
    found = kernels.kernels()
    if found is None or not found.hw_has_few():
        pytest.skip("needs a processor with AVX-512 and bfloat16")
    torch.manual_seed(6)
    stored = gguf.GGMLQuantizationType[kind]
    for out, width in ((1, 32), (200, 96), (70, 1504)):
        data = [gguf.quantize(torch.randn(out, width).numpy(), stored) for _ in range(2)]
        blocks = quantised.joined([quantised.blocks_of(part, kind) for part in data])
        assert blocks is not None
        dense = torch.cat([torch.from_numpy(gguf.dequantize(part, stored)) for part in data])
        bias = torch.randn(2 * out).bfloat16()
        for rows in range(1, 8):
            x = torch.randn(rows, width).bfloat16()
            many = lambda x: torch.full((len(x), 2 * out), 7.0)  # noqa: E731, B023
            ours = quantised.few_rows(found, blocks, bias, many)(x)
            if rows > quantised.FEW:
                assert (ours == 7).all()
            else:
                expected = x.float() @ dense.T
                rounded = expected.bfloat16() + bias
                assert (ours.float() - rounded.float()).abs().max() <= 2**-7 * float(expected.abs().max())


def test_what_is_quantised_in_several_ways_is_unpacked() -> None:
    gguf = pytest.importorskip("gguf", reason="needs the extra: pip install headway[llm]")
    parts = []
    for kind in ("Q4_1", "Q8_0", "Q5_0"):
        data = gguf.quantize(torch.randn(4, 64).numpy(), gguf.GGMLQuantizationType[kind])
        parts.append(quantised.blocks_of(data, kind))
    assert parts[2] is None and parts[0] is not None
    assert quantised.joined(parts[:2]) is None and quantised.joined([parts[0], None]) is None


def test_weights_that_cannot_be_packed_stay_plain(monkeypatch: Any, caplog: Any) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no such operator\nand many lines more")

    monkeypatch.setattr(linear, "packed", broken)
    assert linear.maker(torch.bfloat16) is linear.plain
    assert [record.getMessage() for record in caplog.records] == [
        "weights are not packed, linear maps are slower: no such operator"
    ]


def test_a_library_is_built_once(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(kernels, "FLAGS", tuple("-O0" if flag == "-O3" else flag for flag in kernels.FLAGS))
    built = kernels.build(tmp_path)
    when = built.stat().st_mtime_ns
    assert kernels.build(tmp_path) == built and built.stat().st_mtime_ns == when
    assert list(tmp_path.iterdir()) == [built]


@pytest.mark.parametrize(
    "compilers, message", [(("no-such-c++",), "found none of no-such-c++"), (("false",), "failed")]
)
def test_where_it_cannot_be_built_one_line_says_so(
    compilers: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setattr(kernels, "COMPILERS", compilers)
    with pytest.raises(kernels.BuildError, match=message):
        kernels.build(tmp_path)
    monkeypatch.setattr(kernels, "build", lambda: (_ for _ in ()).throw(kernels.BuildError("no compiler")))
    assert kernels.kernels.__wrapped__() is None
    with caplog.at_level(logging.WARNING):
        assert kernels.kernels.__wrapped__() is None
    assert "without compiled kernels, several times slower: no compiler" in caplog.records[-1].getMessage()

"""Devices and models: how long steps take, how many blocks there are, what to aim for.

`cpu-smollm2` follows measurements on two cores with AMX, bf16, SmolLM2-135M: tokens a second of a decode step at batch
1, 8, 32 and 64 with a context of 64 (54, 449, 1,248, 1,871), at 64 with a context of 1,024 (412), and of prefill in
chunks of 64 to 512 (2,647 to 3,830). Fitted; off by at most 9 % for decodes and 6 % for chunks of 512, while a chunk of
64 comes out 19 % too slow (a straight line cannot have both). Pairs were not measured: 69 kFLOP each at 1 TFLOP/s.

The GPUs are rooflines, not measurements:
- a step reads all weights once from HBM, at 80 % of the published bandwidth (A100-80G SXM 2,039 GB/s, H100 SXM
  3,350 GB/s), and takes a fixed time for launches: 2 ms, and where the model is spread over several GPUs 10 us for each
  of two reductions a layer;
- a prefill token takes 2 FLOP for each parameter, at a share of the published dense bf16 rate (A100 312, H100 989
  TFLOP/s) that is 55 % on the A100 and 45 % on the H100, and 10 % less over several GPUs;
- the arithmetic of a decode row hides behind the reading of weights, up to some 150 rows (A100) or 250 (H100); it takes
  10 us for sampling and for the preparation of its inputs;
- a context token is read at the same bandwidth: 2 x layers x KV heads x head size x 2 bytes;
- a pair takes 4 x layers x heads x head size FLOP, at the same share of the arithmetic.
Terms are added, though the arithmetic of a chunk hides the reading of weights in truth: a step with a long chunk is too
slow by at most the time of reading them. Blocks: 90 % of the memory, less the weights and 2 GB for each GPU.

Against what others have measured: Sarathi-Serve (OSDI 2024) sets its strict limit between tokens to 5 times a decode
step of 32 sequences with 4k of context: 0.1 s for Mistral-7B on an A100, which is 20 ms a step; here 23 ms (8B, and
the same KV size). Splitwise (ISCA 2024) has first tokens of Llama-2-70B over 8 GPUs after 185 ms (A100) and 95 ms
(H100) for prompts of 1,500 tokens; here 188 and 77 ms.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.units import Duration, ms, us
from headway.llm.plan.policy import PlanPolicy
from headway.llm.plan.step_time import Coefficients

BLOCK_SIZE = 16
GB = 10**9


@dataclass(frozen=True, slots=True)
class Preset:
    """steps: the truth; the planner begins with its own prior.  blocks: of the pool, of BLOCK_SIZE tokens."""

    name: str
    steps: Coefficients
    blocks: int
    policy: PlanPolicy

    def capacity(self, prompt: float, output: float) -> float:
        """Requests a second at most, of so many tokens on average: with as many of them at once as the pool, the
        policy's sequences and the time between two tokens allow."""
        k, policy = self.steps, self.policy
        context = prompt + output / 2
        most = min(float(policy.max_sequences), self.blocks * BLOCK_SIZE / (prompt + output))
        prefill = prompt * (k.prefill + k.pairs * prompt / 2000)
        best = 0.0
        for rows in range(1, int(most) + 1):
            step = k.step + rows * (k.decode + k.context * context)
            left = max(policy.target_itl - step, 0.0) / prefill  # prompts a step, that keep the target
            best = max(best, min(left, rows / output) / (step + min(left, rows / output) * prefill))
        return best * 1e9


@dataclass(frozen=True, slots=True)
class _Gpu:
    bandwidth: float
    flops: float
    memory: float = 80 * GB


@dataclass(frozen=True, slots=True)
class _Model:
    parameters: float
    layers: int
    heads: int
    kv_heads: int
    head_size: int = 128


A100 = _Gpu(2039 * GB * 0.8, 312e12 * 0.55)
H100 = _Gpu(3350 * GB * 0.8, 989e12 * 0.45)
LLAMA_8B = _Model(8.03e9, 32, 32, 8)
LLAMA_70B = _Model(70.6e9, 80, 64, 8)
LAUNCH: Duration = ms(2)
REDUCTION: Duration = us(10)
ROW: Duration = us(10)


def _gpu(name: str, gpu: _Gpu, model: _Model, count: int, target_itl: Duration, step_tokens: int) -> Preset:
    weights = 2 * model.parameters
    bandwidth = gpu.bandwidth * count
    flops = gpu.flops * count * (0.9 if count > 1 else 1.0)
    kv = 2 * model.layers * model.kv_heads * model.head_size * 2
    steps = Coefficients(
        step=weights / bandwidth * 1e9 + LAUNCH + (2 * model.layers * REDUCTION if count > 1 else 0),
        prefill=2 * model.parameters / flops * 1e9,
        decode=ROW,
        context=kv / bandwidth * 1e9,
        pairs=4 * model.layers * model.heads * model.head_size / flops * 1e9 * 1000,
    )
    left = count * (0.9 * gpu.memory - 2 * GB) - weights
    policy = PlanPolicy(max_sequences=256, max_step_tokens=step_tokens, max_context=131_072, target_itl=target_itl)
    return Preset(name, steps, int(left / (kv * BLOCK_SIZE)), policy)


CPU = Preset(
    "cpu-smollm2",
    Coefficients(step=ms(16.8), prefill=us(200), decode=us(145), context=us(1.97), pairs=us(60)),
    blocks=2 * 2**30 // (BLOCK_SIZE * 2 * 30 * 3 * 64 * 2),  # 2 GiB; 30 layers, 3 KV heads of 64
    policy=PlanPolicy(max_sequences=64, max_step_tokens=512, max_context=8_192, target_itl=ms(100)),
)

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        CPU,
        _gpu("a100-8b", A100, LLAMA_8B, 1, ms(100), 2048),
        _gpu("h100-8b", H100, LLAMA_8B, 1, ms(50), 4096),
        _gpu("a100x4-70b", A100, LLAMA_70B, 4, ms(100), 2048),
        _gpu("a100x8-70b", A100, LLAMA_70B, 8, ms(100), 2048),
        _gpu("h100x4-70b", H100, LLAMA_70B, 4, ms(100), 4096),
        _gpu("h100x8-70b", H100, LLAMA_70B, 8, ms(100), 4096),
    )
}

"""What drawing the tokens of a step costs: milliseconds for so many rows, beside sorting their logits.

    python benchmarks/sampler.py [--rows 1 8 64] [--vocabulary 49152] [--repeats 20] [--threads 2] [--json]

Logits are normal, of standard deviation 3, with some that stand out, as a model's do; `flat` are nearly equal, which is
the worst that can come: every row with top_p has to be sorted. Told is the median; all of it counts, from the list of
sequences to the list of tokens. Needs the extra torch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

try:
    import torch
except ImportError:
    sys.exit("sampler: needs torch (the extra torch)")

from headway.llm.sample.history import History
from headway.llm.sample.params import SamplingParams
from headway.llm.sample.sampler import sample

KINDS = {
    "greedy": SamplingParams(temperature=0),
    "temperature": SamplingParams(temperature=0.8),
    "top_k 50": SamplingParams(top_k=50),
    "top_p 0.95": SamplingParams(temperature=0.7, top_p=0.95),
    "top_k 50, top_p 0.95": SamplingParams(temperature=0.7, top_k=50, top_p=0.95),
    "min_p 0.05": SamplingParams(min_p=0.05),
    "everything": SamplingParams(
        temperature=0.7,
        top_k=50,
        top_p=0.95,
        min_p=0.01,
        presence=0.5,
        frequency=0.5,
        repetition=1.1,
        logit_bias=((5, 1.0),),
        bad=(7,),
        stops=(2,),
        min_tokens=1000,
        logprobs=5,
    ),
}


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats + 3):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return round(median(times[3:]) * 1e3, 2)


def logits_of(rows: int, size: int, flat: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(rows, size, generator=generator) * (0.01 if flat else 3.0)
    if not flat:
        values[:, :: size // 40] += torch.rand(rows, 1, generator=generator) * 12
    return values


def measure(rows: int, size: int, repeats: int) -> dict[str, float]:
    logits = logits_of(rows, size, flat=False)
    found = {}
    for name, params in KINDS.items():
        sequences = [History(params, list(range(300)), list(range(200, 400)), choice=n) for n in range(rows)]
        found[name] = milliseconds(lambda sequences=sequences: sample(logits, sequences), repeats)  # type: ignore[misc]
    flat, sequences = logits_of(rows, size, flat=True), [History(KINDS["top_p 0.95"], [0])] * rows
    found["top_p 0.95, flat"] = milliseconds(lambda: sample(flat, sequences), max(1, repeats // 4))
    found["(a full sort)"] = milliseconds(lambda: logits.sort(descending=True), max(1, repeats // 4))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--vocabulary", type=int, default=49_152)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    figures = {rows: measure(rows, arguments.vocabulary, arguments.repeats) for rows in arguments.rows}
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"{'ms, of rows':24}" + "".join(f"{rows:>10}" for rows in figures))
    for name in next(iter(figures.values())):
        print(f"{name:24}" + "".join(f"{found[name]:>10.2f}" for found in figures.values()))


if __name__ == "__main__":
    main()

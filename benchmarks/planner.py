"""What planning a step of a language model costs: plan and commit, in thread CPU time.

    python benchmarks/planner.py [--running 256] [--waiting 10 100 1000 4000] [--steps 1000] [--json]

So many sequences run, so many wait, of eight tenants that are equal; whoever finishes is replaced. Prompts of 100 to
600 random tokens, 200 to 400 produced, two plans under way. `plan` and `commit` are timed and nothing else; the time
is this thread's CPU time, so that a busy machine counts for less (its caches still do).
"""

from __future__ import annotations

import argparse
import gc
import json
from dataclasses import asdict, dataclass
from random import Random
from time import thread_time_ns

from headway.core.units import MILLISECOND
from headway.llm.plan.planner import Planner
from headway.llm.plan.policy import PlanPolicy
from headway.llm.plan.request import SequenceRequest
from headway.llm.plan.step_time import Coefficients

TENANTS = 8
VOCABULARY = 30_000
STEP = 20 * MILLISECOND
WARM_UP = 300
BLOCK_SIZE = 16
BLOCKS_EACH = 60
"""Of each sequence that runs: a few more than it comes to need."""


@dataclass(frozen=True)
class Figures:
    """Milliseconds of a step."""

    running: int
    waiting: int
    plan_p50: float
    plan_p99: float
    commit_p50: float
    commit_p99: float
    both_p50: float
    both_p99: float


class Load:
    """A planner with so many that wait, at every step."""

    def __init__(self, running: int, waiting: int) -> None:
        self._random = Random(1)
        self._wanted = running + waiting
        self._added = 0
        policy = PlanPolicy(max_sequences=running, max_step_tokens=running + 2048)
        prior = Coefficients(step=1e6, prefill=1e4, decode=2e4, context=1.0)
        self.planner = Planner(policy, running * BLOCKS_EACH, BLOCK_SIZE, prior=prior)

    def fill(self) -> None:
        random = self._random
        while len(self.planner.state.sequences) < self._wanted:
            self._added += 1
            prompt = [random.randrange(VOCABULARY) for _ in range(random.randrange(100, 600))]
            tenant = f"tenant-{random.randrange(TENANTS)}"
            self.planner.add(SequenceRequest(self._added, tenant, prompt, random.randrange(200, 400)), 0)

    def sampled(self) -> list[int | None]:
        rows = self.planner.state.plans[0].rows
        return [self._random.randrange(VOCABULARY) if row.samples else None for row in rows]


def measure(running: int, waiting: int, steps: int) -> Figures:
    load = Load(running, waiting)
    planner = load.planner
    plans: list[int] = []
    commits: list[int] = []
    gc.collect()
    gc.freeze()
    for step in range(WARM_UP + steps):
        load.fill()
        began = thread_time_ns()
        planner.plan(step * STEP)
        planned = thread_time_ns() - began
        if len(planner.state.plans) < 2:
            continue
        results = load.sampled()
        began = thread_time_ns()
        planner.commit(results, step * STEP, STEP)
        if step >= WARM_UP:
            plans.append(planned)
            commits.append(thread_time_ns() - began)
    gc.unfreeze()
    both = [plan + commit for plan, commit in zip(plans, commits, strict=True)]
    quantiles = (quantile(times, share) for times in (plans, commits, both) for share in (0.5, 0.99))
    return Figures(running, waiting, *quantiles)


def quantile(times: list[int], share: float) -> float:
    """In ms."""
    return sorted(times)[int(share * len(times))] / MILLISECOND


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--waiting", type=int, nargs="+", default=[10, 100, 1_000, 4_000])
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.json:
        print("running  waiting     plan      p99   commit      p99     both      p99   (ms; p50 and p99)")
    for depth in options.waiting:
        figures = measure(options.running, depth, options.steps)
        if options.json:
            print(json.dumps(asdict(figures)))
        else:
            running, waiting, *times = asdict(figures).values()
            print(f"{running:7} {waiting:8}" + "".join(f" {time:8.2f}" for time in times))


if __name__ == "__main__":
    main()

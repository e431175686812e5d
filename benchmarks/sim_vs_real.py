"""The simulator beside the real server: the same arrivals through both, and how far their figures are apart.

    python benchmarks/sim_vs_real.py [--quick] [--seconds 60] [--rounds 3] [--threads 1] [--json FILE]

MiniLM behind a real server that records. Poisson arrivals of mixed length keep it busy for 50 and 80 % of
the time; then the recording's arrivals (when, which lengths) go through the simulator, with the very scheduler, policy
and warm-up measurements of the real run.

What the simulator must be told is what a batch costs. That is measured beforehand: the shape by a grid of sizes
without any server; then, in a run of its own at another load and with other texts, what batches take in service over
the grid, from the scheduler's handing one over (or from the end of the one before, if that is later) to its hearing
of the answer. For each batch of the simulation that ratio is drawn anew, from measured batches of about its size.
`own costs` shows how far apart the two are if the ratios come from the compared run itself: what is left then is the
simulator's, the rest is the machine's, which was faster or slower than when it was measured.

Latency is from arrival at the scheduler to the outcome, in both. What the client sees beyond that (reading,
tokenising, writing) is shown for the real server; the simulator does not know it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from lab import servers
from lab.calibration import calibrated, direct
from lab.figures import markdown, quantiles_ms
from lab.loads import LENGTHS, MODEL, Point, Pool, texts
from lab.recording import RECORDER, calls

from headway.core.effects import DispatchBatch, Effect, ResolveRequest
from headway.core.events import BatchCompleted, Event, RequestArrived, ServerConfigured, VersionConfigured, WorkerReady
from headway.core.ids import Part, RequestId
from headway.core.outcomes import Outcome
from headway.core.scheduler import Scheduler
from headway.core.units import SECOND, Duration, Instant, ms
from headway.sim.clients import Clients
from headway.sim.costs import Cost
from headway.sim.driver import Driver
from headway.sim.fleet import Fleet
from headway.sim.sim_worker import Model
from headway.sim.workloads import Arrival

UTILISATIONS = (0.5, 0.8)
CALIBRATION = 0.65
"""Utilisation of the run that the costs are taken from."""
GOALS = {"p50": 0.10, "p99": 0.20, "per_s": 0.10}
ROWS = (1, 2, 3, 4, 6, 8, 12)
SIZES = (8, 16, 32, 64, 96, 128, 192, 256)
TEXTS = 4096
WARM_UP_S = 2.0
NEIGHBOURS = 10
SINGLES_S = 5.0
"""For which texts run one by one without a server: from that comes the load of the run that gives the costs."""

CONFIG = """
[server]
threads = {threads}
models = {models}

[models."{model}".warm_up]
rows = [1, 2, 8]
lengths = [8, 32, 128, 256]
"""


# -- what a recording says ---------------------------------------------------------------------------


@dataclass
class Run:
    """What the core was told and said in one run. batches: (rows, length, nanoseconds)."""

    policy: VersionConfigured
    server: ServerConfigured
    ready: WorkerReady
    arrivals: list[tuple[Instant, RequestArrived]] = field(default_factory=list)
    completed: dict[RequestId, Instant] = field(default_factory=dict)
    batches: list[tuple[int, int, Duration]] = field(default_factory=list)


def read(directory: Path) -> Run:
    """Raises RuntimeError where the recording has no worker that became ready."""
    told: dict[type[Any], Any] = {}
    arrivals: list[tuple[Instant, RequestArrived]] = []
    completed: dict[RequestId, Instant] = {}
    lengths: dict[RequestId, tuple[Part, ...]] = {}
    running: dict[int, tuple[Instant, int, int]] = {}
    free_since: dict[int, Instant] = {}
    batches: list[tuple[int, int, Duration]] = []
    for call in calls(directory):
        for event in call.events:
            if isinstance(event, ServerConfigured | VersionConfigured | WorkerReady):
                told[type(event)] = event
            elif isinstance(event, RequestArrived):
                arrivals.append((call.now, event))
                lengths[event.request] = event.parts
            elif isinstance(event, BatchCompleted):
                handed_over, rows, length = running.pop(event.batch)
                # one that was handed over while another ran began when that one had ended
                started = max(handed_over, free_since.get(event.worker, 0))
                batches.append((rows, length, call.now - started))
                free_since[event.worker] = call.now
        for effect in call.effects:
            if isinstance(effect, DispatchBatch):
                parts = [lengths[request][part] for request, part in effect.parts]
                rows, length = sum(part.rows for part in parts), max(part.length for part in parts)
                running[effect.batch] = (call.now, rows, length)
            elif isinstance(effect, ResolveRequest) and effect.outcome is Outcome.COMPLETED:
                completed[effect.request] = call.now
    if WorkerReady not in told:
        raise RuntimeError(f"no worker became ready in the recording in {directory}")
    return Run(told[VersionConfigured], told[ServerConfigured], told[WorkerReady], arrivals, completed, batches)


# -- costs ---------------------------------------------------------------------------------------------


class Grid:
    """Run time between measured sizes: linear in rows and in length; beyond the last size as between the last two.

    took: (rows, length) -> nanoseconds, for each of some rows with each of some lengths.
    """

    def __init__(self, took: dict[tuple[int, int], Duration]) -> None:
        self._took = took
        self._rows = sorted(dict.fromkeys(rows for rows, _ in took))
        self._lengths = sorted(dict.fromkeys(length for _, length in took))

    def __call__(self, rows: int, length: int) -> Duration:
        low, high, share = between(self._rows, rows)
        one, other = self._at(low, length), self._at(high, length)
        return max(1, round(one + share * (other - one)))

    def _at(self, rows: int, length: int) -> float:
        low, high, share = between(self._lengths, length)
        one, other = self._took[rows, low], self._took[rows, high]
        return one + share * (other - one)


def between(sizes: Sequence[int], value: int) -> tuple[int, int, float]:
    """The two neighbours of `value` among ascending `sizes` (at least two), and how far it is from one to the other."""
    upper = min(max(bisect_right(sizes, value), 1), len(sizes) - 1)
    low, high = sizes[upper - 1], sizes[upper]
    return low, high, (value - low) / (high - low)


@dataclass(frozen=True)
class Costs:
    """grid: without a server.  batches: (by the grid, in service), ascending, of a run on the server."""

    grid: Grid
    batches: list[tuple[Duration, Duration]]

    @property
    def ratios(self) -> list[float]:
        return [took / expected for expected, took in self.batches]

    def drawn(self, rng: Random) -> Cost:
        """The grid's, times the ratio of a batch that was about as large: what is added does not grow with the size."""

        def cost(rows: int, length: int) -> Duration:
            expected = self.grid(rows, length)
            near = bisect_left(self.batches, (expected, 0))
            reach = max(NEIGHBOURS, len(self.batches) // 16)
            of_a_size, took = rng.choice(self.batches[max(0, near - reach) : near + reach] or self.batches)
            return max(1, round(expected * took / of_a_size))

        return cost


def costs_of(grid: Grid, run: Run) -> Costs:
    """Until the scheduler hears of the answer the worker is taken, so the channel's time is part of the cost."""
    return Costs(grid, sorted((grid(rows, length), trip) for rows, length, trip in run.batches))


# -- the real server -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    models: Path
    threads: int
    rounds: int
    seconds: float


def real(options: Options, rate: float, seed: int) -> tuple[Run, Pool]:
    """One run at this rate; the pool is what the client saw."""
    pool = Pool()
    bodies = texts(TEXTS, seed).bodies
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folder = root / "recordings"
        config = CONFIG.format(
            threads=options.threads,
            models=json.dumps(str(options.models.resolve())),
            model=MODEL,
        )
        with servers.headway(config + RECORDER.format(directory=json.dumps(str(folder))), root) as address:
            pool.load(address, Point(rate=rate), options.seconds, bodies, seed)
        return read(folder), pool


# -- the simulator ---------------------------------------------------------------------------------------


class Outcomes:
    """An observer: when each request came and when it was done."""

    def __init__(self) -> None:
        self.latencies: list[tuple[Instant, Duration]] = []
        self.last: Instant = 0
        self._arrived: dict[RequestId, Instant] = {}

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        for event in events:
            if isinstance(event, RequestArrived):
                self._arrived[event.request] = now
        for effect in effects:
            if isinstance(effect, ResolveRequest):
                came = self._arrived.pop(effect.request)
                self.latencies.append((came, now - came))
                self.last = now


def simulated(run: Run, costs: Costs, seed: int) -> list[tuple[Instant, Duration]]:
    """(arrival, latency) of each request of `run`, in virtual time from its first arrival."""
    outcomes = Outcomes()
    driver = Driver(Scheduler(), (outcomes,))
    model = Model(costs.drawn(Random(f"{seed} costs")), measurements=run.ready.measurements)
    fleet = Fleet(driver, {run.policy.version: model}, Random(seed))
    clients = Clients(driver, Random(seed))
    driver.tell(run.server)
    driver.tell(run.policy)
    fleet.start()
    first = run.arrivals[0][0] - ms(1)
    clients.open_loop(Arrival(now - first, event.key, event.parts, event.tenant) for now, event in run.arrivals)
    driver.run()
    return outcomes.latencies


# -- comparing ---------------------------------------------------------------------------------------------


def figures(latencies: Sequence[tuple[Instant, Duration]]) -> dict[str, float]:
    """After the warm-up. per_s: from the first arrival that counts to the last outcome."""
    from_then_on = min(came for came, _ in latencies) + round(WARM_UP_S * SECOND)
    counted = [(came, took) for came, took in latencies if came >= from_then_on]
    span = max(came + took for came, took in counted) - min(came for came, _ in counted)
    quantiles = quantiles_ms([took for _, took in counted])
    return {"p50": quantiles["p50"], "p99": quantiles["p99"], "per_s": len(counted) * SECOND / span}


def compare(run: Run, costs: Costs, seed: int) -> dict[str, dict[str, float]]:
    """own: simulated with what the batches of this very run took; the machine's drift since the measurement is out."""
    own = costs_of(costs.grid, run)
    done = [(now, run.completed[event.request] - now) for now, event in run.arrivals if event.request in run.completed]
    simulations = {"simulated": costs, "own": own}
    return {"real": figures(done), **{name: figures(simulated(run, c, seed)) for name, c in simulations.items()}}


def served_per_busy_s(run: Run) -> float:
    """Requests per second of a worker's time: the rate of utilisation 1, if batches stayed as they are."""
    return len(run.completed) * SECOND / sum(took for *_, took in run.batches)


def busy_share(run: Run) -> float:
    span = max(run.completed.values()) - run.arrivals[0][0]
    return sum(took for *_, took in run.batches) / span


def table(rows: Sequence[dict[str, Any]]) -> str:
    header = [
        "utilisation",
        "busy",
        "requests",
        "figure",
        "real",
        "simulated",
        "apart",
        "goal",
        "own costs",
        "client saw",
    ]
    lines = []
    for utilisation in dict.fromkeys(row["utilisation"] for row in rows):
        mine = [row for row in rows if row["utilisation"] == utilisation]
        busy = f"{median(row['busy'] for row in mine):.0%}"
        count = str(sum(row["requests"] for row in mine))
        for figure, goal in GOALS.items():
            real_one = median(row["real"][figure] for row in mine)
            simulated_one = median(row["simulated"][figure] for row in mine)
            apart = median(row["simulated"][figure] / row["real"][figure] - 1 for row in mine)
            own = median(row["own"][figure] / row["real"][figure] - 1 for row in mine)
            numbers = [f"{real_one:.1f}", f"{simulated_one:.1f}", f"{apart:+.1%}", f"{goal:.0%}", f"{own:+.1%}"]
            saw = f"{median(row['client'][figure] for row in mine):.1f}"
            lines.append([f"{utilisation:.0%}", busy, count, figure, *numbers, saw])
    return markdown(header, lines)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def one(options: Options, utilisation: float, rate: float, costs: Costs, seed: int) -> dict[str, Any]:
    run, pool = real(options, rate, seed)
    saw = pool.figures()
    client = {"p50": saw["p50"], "p99": saw["p99"], "per_s": saw["ok_per_s"]}
    both = compare(run, costs, seed)
    row = {"utilisation": utilisation, "rate": rate, "busy": busy_share(run), "requests": len(run.completed)}
    say(
        f"utilisation {utilisation:.0%}: "
        + json.dumps({k: {n: round(v, 2) for n, v in f.items()} for k, f in both.items()})
    )
    return {**row, **both, "client": client}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=Path(".headway/models"), help="repository with the model")
    parser.add_argument("--threads", type=int, default=1, help="compute threads (default 1)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run (default 60)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="one round of 8 seconds: does it run?")
    wanted = parser.parse_args()
    if not (wanted.models / MODEL).is_dir():
        parser.error(f"{wanted.models} has no {MODEL}: run `make serve` once, it makes the model ready")
    size = (1, 8.0) if wanted.quick else (wanted.rounds, wanted.seconds)
    options = Options(wanted.models, wanted.threads, *size)
    rows = []
    with direct((wanted.models / MODEL / "1").resolve(), wanted.threads) as plain:
        say(f"machine: {calibrated(plain.calibrate())}")
        for number in range(options.rounds):
            full = plain.measure(texts(TEXTS, 0).lengths, 0, SINGLES_S)["ok_per_s"]
            grid = Grid(plain.grid(ROWS, SIZES))
            calibration, _ = real(options, CALIBRATION * full, 0)
            costs = costs_of(grid, calibration)
            in_service = f"in service {median(costs.ratios):.2f} x the grid"
            say(f"round {number + 1}: {full:.1f}/s one by one without a server; {in_service}")
            for utilisation in UTILISATIONS:
                rate = utilisation * served_per_busy_s(calibration)
                rows.append(one(options, utilisation, rate, costs, 1 + number))
            say(f"machine: {calibrated(plain.calibrate())}")
    print(f"`python benchmarks/sim_vs_real.py {' '.join(sys.argv[1:])}`: medians of {options.rounds} rounds,")
    print(f"texts {LENGTHS} tokens, compute threads: {options.threads}; p50 and p99 in ms, per_s completed\n")
    print(table(rows))
    if wanted.json is not None:
        wanted.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

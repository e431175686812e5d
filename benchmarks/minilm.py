"""MiniLM behind headway and behind peers, measured in the same minutes, with the machine's own speed beside them.

    python benchmarks/minilm.py                                   a look: some minutes
    python benchmarks/minilm.py --quick                           does it run: about two minutes, no figures to quote
    python benchmarks/minilm.py --seconds 20 --requests 20000 --json FILE      figures to quote: over an hour
    python benchmarks/minilm.py --threads 2                       two compute threads for each

All servers run beside each other and one at a time has load. A round has a closed loop with 1 and
with 32 clients, then Poisson arrivals at 50, 70 and 85 % of what headway without batching does in the closed loop
of 32 (in this very run). At each of these points the servers take turns in slices of a few seconds, and a round's
slices are pooled; the table has medians over the rounds. Texts have a lognormal length of median 44 and at most
256 tokens, the same for all. In the open loop latency counts from the moment at which a request was due.

`--requests` is for all rounds together; the closed loop of 1, and the servers that are there for context only, get a
tenth of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

from lab import servers
from lab.calibration import Direct, calibrated, direct
from lab.environments import PEERS, python_of
from lab.figures import markdown
from lab.loads import LENGTHS, MODEL, ROUTE, Point, Pool, Texts, describe, texts

from headway.registry.minilm import find_source

TEXTS = 2048
CLOSED = (Point(concurrency=1, label="closed 1"), Point(concurrency=32, label="closed 32"))
SHARES = (0.50, 0.70, 0.85)

HEADWAY, ALONE, FIRST_COME = "headway", "headway, no batching", "first-come 32"
MOSEC, MOSEC_32, DIRECT = "mosec, batch 1", "mosec, batch 32", "onnxruntime directly"
TORCH = {
    "headway, torch bfloat16": "[torch]\ndtype = 'bfloat16'",
    "headway, torch bfloat16 padded": "[torch]\ndtype = 'bfloat16'\npacking = 'off'",
    "headway, torch float32": "[torch]\ndtype = 'float32'",
    "headway, torch float32 padded": "[torch]\ndtype = 'float32'\npacking = 'off'",
}
"""Name -> what its model.toml says. Only where `--servers` names them."""

IN_CLOSED = (HEADWAY, ALONE, FIRST_COME, MOSEC, MOSEC_32, *TORCH)
IN_OPEN = (HEADWAY, ALONE, MOSEC)
CONTEXT = (FIRST_COME, MOSEC_32)
"""Nobody is compared with these closely, and they are slow: a tenth of the requests will do."""
GOAL = 0.92

CONFIG = """
[server]
threads = {threads}
models = {models}

[models."{model}".batching]
max_batch_size = {rows}

[models."{model}".warm_up]
rows = {warm_rows}
lengths = [8, 32, 128, 256]
"""


@dataclass(frozen=True)
class Options:
    """seconds: of a slice.  requests: at least so many at each point, over all rounds (see `wanted`)."""

    models: Path
    threads: int
    rounds: int
    seconds: float
    requests: int
    search_s: float
    servers: tuple[str, ...]
    json: Path | None

    @property
    def model(self) -> Path:
        return (self.models / MODEL / "1").resolve()

    def wanted(self, point: Point, name: str) -> int:
        """Requests of one server at one point in one round. A tenth where no goal depends on it."""
        context = point is CLOSED[0] or name in CONTEXT
        return ceil(self.requests / self.rounds / (10 if context else 1))


Row = dict[str, Any]


# -- servers ---------------------------------------------------------------------------------------


def headway(
    name: str, rows: int, start: Sequence[str], options: Options, directory: Path, models: Path | None = None
) -> Any:
    """models: another repository than that of the options."""
    config = CONFIG.format(
        threads=options.threads,
        models=json.dumps(str((models or options.models).resolve())),
        model=MODEL,
        rows=rows,
        warm_rows=[size for size in (1, 2, 8) if size <= rows],
    )
    return servers.headway(config, directory, name, start)


def torch_repository(name: str, directory: Path) -> Path:
    """The default model's own folder, as it lies in its package, as a repository."""
    repository = directory / name.replace(", ", "-").replace(" ", "-")
    model = repository / MODEL
    model.mkdir(parents=True)
    (model / "1").symlink_to(find_source())
    (model / "model.toml").write_text(TORCH[name] + "\n")
    return repository


@contextmanager
def mosec(name: str, rows: int, options: Options) -> Iterator[str]:
    port = servers.free_port()
    command = [python_of("mosec"), str(PEERS / "mosec_minilm.py"), "--port", str(port), "--model", str(options.model)]
    with servers.process(name, [*command, "--threads", str(options.threads), "--rows", str(rows)]) as server:
        address = f"http://127.0.0.1:{port}"
        server.wait_until_answers(address + ROUTE, json.dumps({"model": MODEL, "input": "ready"}).encode())
        yield address


def started(name: str, options: Options, directory: Path) -> AbstractContextManager[str]:
    """A server by its name in the table: its address."""
    first_come = [sys.executable, str(PEERS / "first_come.py")]
    makers: dict[str, Callable[[], AbstractContextManager[str]]] = {
        HEADWAY: lambda: headway(name, 32, servers.HEADWAY, options, directory),
        ALONE: lambda: headway(name, 1, servers.HEADWAY, options, directory),
        FIRST_COME: lambda: headway(name, 32, first_come, options, directory),
        MOSEC: lambda: mosec(name, 1, options),
        MOSEC_32: lambda: mosec(name, 32, options),
        **{
            one: lambda one=one: headway(  # type: ignore[misc]
                name, 32, servers.HEADWAY, options, directory, torch_repository(one, directory)
            )
            for one in TORCH
        },
    }
    return makers[name]()


# -- measuring -------------------------------------------------------------------------------------


class Measurement:
    """rows: one per round, point and server, in the order in which they were measured."""

    def __init__(self, options: Options, addresses: dict[str, str], plain: Direct) -> None:
        self.rows: list[Row] = []
        self.calibrations: list[dict[str, float]] = []
        self.budgets: dict[str, Any] = {}
        self._options = options
        self._addresses = addresses
        self._plain = plain
        self._seeds = count(1)

    def run(self) -> None:
        self._calibrate("before all")
        lengths = texts(TEXTS, 0).lengths
        self.budgets = self._plain.search(lengths, self._options.search_s)
        say(f"best token budget without a server: {self.budgets['budget']}")
        for number in range(self._options.rounds):
            given = texts(TEXTS, number)
            for point in CLOSED:
                self._point(number, point, [n for n in IN_CLOSED if n in self._addresses], given)
            self._calibrate(f"round {number + 1}, after the closed loops")
            for point in self._open_points():
                self._point(number, point, [n for n in IN_OPEN if n in self._addresses], given)
            self._calibrate(f"after round {number + 1}")

    def _open_points(self) -> list[Point]:
        """The rates are those of the first round in all rounds, or their medians would be of different loads."""
        full = [row["ok_per_s"] for row in self.rows if row["server"] == ALONE and row["point"] == CLOSED[-1].label]
        return [Point(rate=share * full[0], label=f"open {share:.0%}") for share in SHARES] if full else []

    def _point(self, number: int, point: Point, names: list[str], given: Texts) -> None:
        """Slices in turn until every server has its share of the requests; each turn begins with another."""
        wanted = {name: self._options.wanted(point, name) for name in names}
        pools = {name: Pool() for name in names}
        plain: list[float] = []
        for turn in count(number):
            seed = next(self._seeds)
            for name in rotated([*names, DIRECT] if point is CLOSED[-1] else names, turn):
                if name == DIRECT:
                    plain.append(self._directly(given))
                elif pools[name].requests < wanted[name] or turn == number:
                    pools[name].load(self._addresses[name], point, self._options.seconds, given.bodies, seed)
            if all(pool.requests >= wanted[name] for name, pool in pools.items()):
                break
        for name, pool in pools.items():
            self._keep({"round": number, "server": name, **describe(point), **pool.figures()})
        if plain:
            self._keep({"round": number, "server": DIRECT, **describe(point), "ok_per_s": round(median(plain), 2)})

    def _directly(self, given: Texts) -> float:
        per_s: float = self._plain.measure(given.lengths, self.budgets["budget"], self._options.seconds)["ok_per_s"]
        return per_s

    def _calibrate(self, when: str) -> None:
        now = self._plain.calibrate()
        self.calibrations.append(now)
        say(f"machine, {when}: {calibrated(now)}")

    def _keep(self, row: Row) -> None:
        self.rows.append(row)
        latency = f"p50 {row['p50']:>7.1f}  p99 {row['p99']:>7.1f} ms  failed {row['failed']}" if "p50" in row else ""
        say(f"round {row['round'] + 1}  {row['point']:<9}  {row['server']:<20}  {row['ok_per_s']:>7.1f}/s  {latency}")


def rotated(names: list[str], by: int) -> list[str]:
    """Each turn begins with another server."""
    by %= len(names)
    return names[by:] + names[:by]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# -- the table ---------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    """Medians over the rounds."""
    header = ["load", "server", "answers/s", "p50 ms", "p95 ms", "p99 ms", "requests", "failed"]
    lines = []
    for point, name in dict.fromkeys((row["point"], row["server"]) for row in rows):
        mine = [row for row in rows if (row["point"], row["server"]) == (point, name)]
        rate = median(row["rate"] for row in mine)
        load = f"{point} ({rate:.0f}/s)" if rate else point
        per_s = f"{median(row['ok_per_s'] for row in mine):.1f}"
        answered = [row for row in mine if "p50" in row]
        quantiles = [f"{median(row[q] for row in answered):.1f}" if answered else "" for q in ("p50", "p95", "p99")]
        totals = [str(sum(row[key] for row in mine)) if key in mine[0] else "" for key in ("requests", "failed")]
        lines.append([load, name, per_s, *quantiles, *totals])
    return markdown(header, lines)


def verdicts(rows: Sequence[Row]) -> list[str]:
    """headway beside each goal; a ratio is the median of each round's own ratio, so slow rounds do not distort it."""
    lines = []
    against = [(DIRECT, f" (goal: at least {GOAL})"), (ALONE, ""), (FIRST_COME, ""), (MOSEC, ""), (MOSEC_32, "")]
    for peer, goal in against:
        if ratio := ratios(rows, CLOSED[-1].label, peer, "ok_per_s"):
            lines.append(f"closed 32, answers/s, headway to {peer}: {shown(ratio)}{goal}")
    for share in SHARES:
        for figure in ("p50", "p99"):
            if ratio := ratios(rows, f"open {share:.0%}", MOSEC, figure):
                lines.append(f"open {share:.0%}, {figure}, headway to {MOSEC}: {shown(ratio)} (goal: at most 1)")
    return lines


def ratios(rows: Sequence[Row], point: str, peer: str, figure: str) -> list[float]:
    """headway's figure over the peer's, one for each round that has both."""
    found = {(row["round"], row["server"]): row[figure] for row in rows if row["point"] == point and row.get(figure)}
    rounds = dict.fromkeys(number for number, _ in found)
    both = [number for number in rounds if (number, HEADWAY) in found and (number, peer) in found]
    return [found[number, HEADWAY] / found[number, peer] for number in both]


def shown(ratio: Sequence[float]) -> str:
    return f"{median(ratio):.2f} (by round {', '.join(f'{value:.2f}' for value in ratio)})"


def machine(calibrations: Sequence[dict[str, float]]) -> str:
    parts = []
    for key, what in (("python_ns", "ns per iteration of a Python loop"), ("onnx_ms", "ms for 64 tokens in ONNX")):
        values = [now[key] for now in calibrations]
        parts.append(f"{min(values):.2f} to {max(values):.2f} {what}")
    return "; ".join(parts)


def parsed() -> Options:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=Path(".headway/models"), help="repository with the model")
    parser.add_argument("--threads", type=int, default=1, help="compute threads of each server (default 1)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of one slice (default 10)")
    parser.add_argument("--requests", type=int, default=0, help="at least so many per point and server, all rounds")
    parser.add_argument("--servers", default="", help=f"of {', '.join(IN_CLOSED)}: those named, split by ';'")
    parser.add_argument("--json", type=Path, help="write every round here")
    parser.add_argument("--quick", action="store_true", help="one short round: does everything run?")
    wanted = parser.parse_args()
    if not (wanted.models / MODEL).is_dir():
        parser.error(f"{wanted.models} has no {MODEL}: run `make serve` once, it makes the model ready")
    usual = tuple(name for name in IN_CLOSED if name not in TORCH)
    names = tuple(name.strip() for name in wanted.servers.split(";") if name.strip()) or usual
    if unknown := [name for name in names if name not in IN_CLOSED]:
        parser.error(f"no server {unknown[0]!r}; there are: {'; '.join(IN_CLOSED)}")
    if wanted.quick:
        return Options(wanted.models, wanted.threads, 1, 3.0, 0, 8.0, names, wanted.json)
    size = (wanted.rounds, wanted.seconds, wanted.requests, 60.0)
    return Options(wanted.models, wanted.threads, *size, names, wanted.json)


def main() -> None:
    options = parsed()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        addresses = {name: stack.enter_context(started(name, options, directory)) for name in options.servers}
        measurement = Measurement(options, addresses, stack.enter_context(direct(options.model, options.threads)))
        measurement.run()
    print(f"`python benchmarks/minilm.py {' '.join(sys.argv[1:])}`: medians of {options.rounds} rounds,")
    print(f"compute threads: {options.threads}; texts {LENGTHS} tokens; machine: {machine(measurement.calibrations)}\n")
    print(table(measurement.rows))
    print()
    print("\n".join(verdicts(measurement.rows)))
    tried = ", ".join(f"{budget}: {per_s:.1f}" for budget, per_s in measurement.budgets["ok_per_s"].items())
    print(f"onnxruntime directly, answers/s by token budget (0: one text at a time): {tried}")
    if options.json is not None:
        record = {"rows": measurement.rows, "calibrations": measurement.calibrations, "budgets": measurement.budgets}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

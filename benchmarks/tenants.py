"""What tenants are promised, on the real server: MiniLM, one worker with one compute thread, a key for each tenant.

    python benchmarks/tenants.py --seconds 60 --json FILE            figures to quote: about half an hour
    python benchmarks/tenants.py polite --seconds 10                 one of polite, cost, overload
    python benchmarks/tenants.py --quick                             does it run: three minutes, no figures to quote

polite    a tenant in an open loop at half its share and at its share, alone and beside another of the same weight that
          has 500, then 2,000 requests under way all the time; then it comes in bursts, after pauses
cost      512 requests under way, of one tenant, of eight, and of one behind `peers/first_come.py`: in turns
overload  an open loop at 1.5 and at 3 times what the server did just before, with an SLO on the model, from its
          first moment on

Loads are processes of their own; they, gateway and worker share the machine's cores, and what each took is printed.
Latency counts from the moment at which a request was due.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import servers
from lab.beside import Run, Served, beside, pooled, shares
from lab.calibration import calibrated, direct
from lab.environments import PEERS
from lab.figures import markdown
from lab.loads import LENGTHS, MODEL
from lab.overload import Overload
from lab.recording import RECORDER, calls
from lab.returning import returns
from lab.sharing import AGGRESSOR, BURST, FIRST, MANY, ONE, POLITE, cost_table, polite_table, returned
from lab.streams import Stream

from headway.gateway.keys import new_key

EIGHT = tuple(f"tenant-{n}" for n in range(1, 9))
OUTSTANDING = (500, 2000)
UNDER_WAY = 512
"""Of all tenants together, where the cost of fairness is measured."""
EVERY_S = 4.0
FACTORS = (1.5, 3.0)
UNHURRIED = "unhurried"
USERS = 32
"""Of the closed loop that capacity is measured by: of a tenant with an SLO of an hour, for it has to refuse nobody."""
GENTLE = 0.3
PAUSE_S = 5.0
SHORT_S = 20.0
"""The longest that capacity and the gentle load are measured beside an overload."""
HEALTH = Stream("health", pulse=20, path="/health")

CONFIG = """
[server]
threads = 1
models = {models}
request_timeout_s = 3600
shutdown_grace_s = 1

[models."{model}"]
slo_ms = {slo_ms}

[models."{model}".warm_up]
rows = [1, 2, 8, 32]
lengths = [8, 32, 128, 256]
"""
NO_HURRY = f"""
[tenants.{UNHURRIED}]
slo_ms = 3600000
"""
OF_A_TENANT = """
[[tenants."{name}".keys]]
id = "{id}"
sha256 = "{sha256}"
"""


@dataclass(frozen=True)
class Options:
    """seconds: of each measurement.  warm_up: seconds of load before it.  rounds: of `cost`.
    factors: of capacity, in `overload`."""

    models: Path
    seconds: float
    warm_up: float
    rounds: int
    slo_ms: float
    outstanding: tuple[int, ...]
    factors: tuple[float, ...]


@dataclass(frozen=True)
class Server:
    """keys: by tenant.  tells: has metrics; a peer in the scheduler's place has none."""

    address: str
    pid: int
    keys: dict[str, str]
    options: Options
    tells: bool

    def stream(self, tenant: str, **load: Any) -> Stream:
        return Stream(tenant, self.keys[tenant], seed=sum(tenant.encode()), **load)

    def run(self, *groups: Sequence[Stream], seconds: float = 0.0, whole: bool = False) -> Run:
        """Each group from a process of its own.  whole: measured from its first moment, without a warm-up."""
        served = Served(self.address, self.pid, self.busy_s)
        return beside(served, groups, seconds or self.options.seconds, 0.0 if whole else self.options.warm_up)

    def busy_s(self) -> float:
        """Seconds that workers have had a batch; 0 where it is not told."""
        if not self.tells:
            return 0.0
        found = re.findall(r"^headway_worker_busy_seconds_total\{.*\} (\S+)$", self._ask("/metrics"), re.MULTILINE)
        return sum(map(float, found))

    def in_force(self, name: str) -> float:
        """A setting, as `headway explain` tells it."""
        values = json.loads(self._ask(f"/v2/models/{MODEL}/explain"))["values"]
        return float(next(value["value"] for value in values if value["name"] == name))

    def _ask(self, path: str) -> str:
        key = next(iter(self.keys.values()))
        with urllib.request.urlopen(urllib.request.Request(self.address + path, headers={"x-api-key": key})) as reply:
            text: str = reply.read().decode()
        return text


@contextmanager
def server(
    options: Options, tenants: Sequence[str], *, slo_ms: float = 0, more: str = "", start: Sequence[str] = ()
) -> Iterator[Server]:
    keys = {name: new_key() for name in tenants}
    config = CONFIG.format(models=json.dumps(str(options.models.resolve())), model=MODEL, slo_ms=slo_ms) + more
    for name, key in keys.items():
        config += OF_A_TENANT.format(name=name, id=key.settings.id, sha256=key.settings.sha256)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running = servers.serving(config, directory, start=start or servers.HEADWAY)
        address, process = stack.enter_context(running)
        yield Server(address, process.pid, {name: key.text for name, key in keys.items()}, options, not start)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# -- polite ------------------------------------------------------------------------------------------


def polite(options: Options) -> dict[str, Any]:
    with server(options, (POLITE, AGGRESSOR)) as one:
        max_batch_ms = one.in_force("max_batch_ms")
        before = one.run([one.stream(AGGRESSOR, concurrency=options.outstanding[0])])
        capacity = before.per_s
        say(f"polite: {capacity:.1f}/s with the aggressor alone")
        quarter, half = (one.stream(POLITE, rate=part * capacity) for part in (0.25, 0.5))
        alone = [one.run([quarter])]
        measured = []
        for outstanding in options.outstanding:
            aggressor = one.stream(AGGRESSOR, concurrency=outstanding, goes_on_s=2.0)
            for share, stream in ((0.5, quarter), (1.0, half)):
                run = one.run([stream], [aggressor])
                say(f"polite: at {share:g} of its share beside {outstanding}: {run.figures()['streams'][POLITE]}")
                measured.append((share, outstanding, run))
        alone.append(one.run([quarter]))
        after = one.run([one.stream(AGGRESSOR, concurrency=options.outstanding[0])])
    by_itself = pooled([run.streams[POLITE] for run in alone])
    print(polite_table(by_itself, (before, after), max_batch_ms, measured))
    return {
        "max_batch_ms": max_batch_ms,
        "capacity": [before.figures(), after.figures()],
        "alone": [run.figures() for run in alone],
        "beside": [{"share": s, "outstanding": n, **run.figures()} for s, n, run in measured],
        "returns": came_back(options),
    }


def came_back(options: Options) -> list[dict[str, Any]]:
    found = []
    for outstanding in options.outstanding:
        with tempfile.TemporaryDirectory() as directory:
            recordings = Path(directory) / "recordings"
            more = RECORDER.format(directory=json.dumps(str(recordings)))
            with server(options, (POLITE, AGGRESSOR), more=more) as one:
                bursts = one.stream(POLITE, burst=BURST, every_s=min(EVERY_S, options.seconds / 3))
                one.run([bursts], [one.stream(AGGRESSOR, concurrency=outstanding, goes_on_s=2.0)])
            each = returns(calls(recordings), POLITE)
        print(f"\n{returned(each, outstanding)}")
        record = [{"in_hand": r.in_hand, "passed": r.passed, "waited_ms": r.waited_ms, "share": r.share} for r in each]
        found.append({"outstanding": outstanding, "returns": record})
    return found


# -- cost --------------------------------------------------------------------------------------------


def cost(options: Options) -> dict[str, Any]:
    runs: dict[str, list[Run]] = {ONE: [], MANY: [], FIRST: []}
    with ExitStack() as stack:
        fair = stack.enter_context(server(options, EIGHT))
        first = stack.enter_context(server(options, EIGHT, start=(sys.executable, str(PEERS / "first_come.py"))))
        single = [fair.stream(EIGHT[0], concurrency=UNDER_WAY)]
        several = [fair.stream(name, concurrency=UNDER_WAY // len(EIGHT)) for name in EIGHT]
        loads = {ONE: (fair, single), MANY: (fair, several)}
        loads[FIRST] = (first, [first.stream(EIGHT[0], concurrency=UNDER_WAY)])
        for number in range(options.rounds):
            for name in [*runs][number % 3 :] + [*runs][: number % 3]:
                at, load = loads[name]
                run = at.run(load)
                runs[name].append(run)
                say(f"cost: round {number + 1}: {name} {run.per_s:.1f}/s, {', '.join(shares(run.cpu))}")
    print(cost_table(runs))
    return {"runs": [{"server": name, **run.figures()} for name, each in runs.items() for run in each]}


# -- overload ----------------------------------------------------------------------------------------


def overload(options: Options) -> dict[str, Any]:
    tenant = EIGHT[0]
    short = min(options.seconds, SHORT_S)
    found = []
    with server(options, [tenant, UNHURRIED], slo_ms=options.slo_ms, more=NO_HURRY) as one:
        busy = one.stream(UNHURRIED, concurrency=USERS)
        for factor in options.factors:
            before = one.run([busy], seconds=short)
            gentle = one.stream(tenant, rate=GENTLE * before.per_s)
            calm = one.run([gentle], seconds=short)
            run = one.run([one.stream(tenant, rate=factor * before.per_s)], [HEALTH], whole=True)
            time.sleep(max(0.0, PAUSE_S - options.warm_up))  # what warms the next load up is part of the pause
            again = one.run([gentle], seconds=short)
            found.append(
                Overload(factor, options.slo_ms, tenant, before, calm, run, again, one.run([busy], seconds=short))
            )
            say(f"overload: {factor:g} times {before.per_s:.1f}/s: {run.figures()['streams']}")
    columns = [one.rows() for one in found]
    rows = [[same[0][0], *(figure for _, figure in same)] for same in zip(*columns, strict=True)]
    print(markdown([f"SLO {options.slo_ms:g} ms", *(f"{one.factor:g} times capacity" for one in found)], rows))
    return {"slo_ms": options.slo_ms, "loads": [one.figures() for one in found]}


# -- all together ------------------------------------------------------------------------------------

EXPERIMENTS = {"polite": polite, "cost": cost, "overload": overload}


def parsed() -> tuple[Options, list[str], Path | None]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", metavar="polite|cost|overload", help="all if none is named")
    parser.add_argument("--models", type=Path, default=Path(".headway/models"), help="repository with the model")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement (default 60)")
    parser.add_argument("--rounds", type=int, default=3, help="of cost (default 3)")
    parser.add_argument("--slo-ms", type=float, default=500.0, help="of the model, in overload (default 500)")
    parser.add_argument("--factors", type=float, nargs="+", default=FACTORS, help="of capacity, in overload")
    parser.add_argument("--outstanding", type=int, nargs="+", default=OUTSTANDING, help="of the aggressor, in polite")
    parser.add_argument(
        "--warm-up", type=float, default=3.0, help="seconds of load before each measurement (default 3)"
    )
    parser.add_argument("--json", type=Path, help="write every measurement here")
    parser.add_argument("--quick", action="store_true", help="a few seconds each: does everything run?")
    wanted = parser.parse_args()
    if not (wanted.models / MODEL).is_dir():
        parser.error(f"{wanted.models} has no {MODEL}: run `make serve` once, it makes the model ready")
    if unknown := [name for name in wanted.experiments if name not in EXPERIMENTS]:
        parser.error(f"no experiment {unknown[0]!r}; there are: {', '.join(EXPERIMENTS)}")
    sizes = (wanted.seconds, wanted.warm_up, wanted.rounds, wanted.slo_ms)
    options = Options(wanted.models, *sizes, tuple(wanted.outstanding), tuple(wanted.factors))
    if wanted.quick:
        options = Options(wanted.models, 4.0, 1.0, 1, wanted.slo_ms, (50, 200), FACTORS)
    return options, wanted.experiments or [*EXPERIMENTS], wanted.json


@contextmanager
def machine(model: Path) -> Iterator[Callable[[], str]]:
    """Tells how fast it is at this moment. model: the folder with model.onnx, where there is one."""

    def load() -> str:
        return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"

    if not (model / "model.onnx").exists():
        yield load
        return
    with direct(model.resolve(), threads=1) as plain:
        yield lambda: f"{calibrated(plain.calibrate())}, {load()}"


def main() -> None:
    options, wanted, json_file = parsed()
    found: dict[str, Any] = {}
    print(
        f"`python benchmarks/tenants.py {' '.join(sys.argv[1:])}`: texts {LENGTHS} tokens, {options.seconds:g} s each\n"
    )
    with machine(options.models / MODEL / "1") as now:
        for name in wanted:
            before = now()
            print(f"## {name}\n")
            found[name] = EXPERIMENTS[name](options)
            found[name]["machine"] = [before, now()]
            print("\nMachine before: {}; after: {}.\n".format(*found[name]["machine"]), flush=True)
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

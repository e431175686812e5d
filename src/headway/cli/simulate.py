"""`headway simulate`: the scheduler in virtual time, against an invented or a recorded load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import click
from click.core import ParameterSource

from headway.cli.charts import NoPlots, draw, require_plots
from headway.cli.scenario_file import read_scenario
from headway.cli.tenant_shares import TenantShares
from headway.config.errors import ConfigError
from headway.config.settings import MAX_QUEUE_DELAY_MS
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.tenancy import TenantPolicy
from headway.core.units import NEVER, ms, seconds
from headway.sim import workloads
from headway.sim.costs import COSTS, noisy
from headway.sim.faults import NO_FAULTS, Faults
from headway.sim.report import as_table
from headway.sim.scenario import KEY, Scenario
from headway.sim.scenario import simulate as run
from headway.sim.tenant_report import tenants_table
from headway.sim.tenants import simulate_tenants
from headway.sim.timeline import Timeline
from headway.sim.workloads import Arrival, Mix

FAULTS = Faults(
    batch_fails=0.002, part_fails=0.002, slow=0.01, hang=0.001, duplicate=0.01, stale=0.5, time_to_loss=seconds(5)
)
BURST = seconds(1)
WITH_A_SCENARIO = ("scenario", "charts", "seed", "check", "as_json")
"""Options that make sense beside --scenario, which says all else."""


COST_HELP = "Shape of the service time (default cpu). " + " ".join(
    f"{name}: {(cost.__doc__ or '').strip()}" for name, cost in COSTS.items()
)


class Simulate(click.Command):
    """With --llm it is another command, that has options of its own."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if "--llm" not in args:
            return super().make_context(info_name, args, parent, **extra)
        from headway.cli.simulate_llm import simulate_llm

        return simulate_llm.make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)


@click.command(cls=Simulate)
@click.option(
    "--llm",
    is_flag=True,
    help="Engines of a language model instead, with options of their own: headway simulate --llm --help.",
)
@click.option(
    "--scenario",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Several tenants, each with a load of its own: a TOML file, see docs/simulate.md and examples/scenarios.",
)
@click.option(
    "--charts",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --scenario: a folder for charts of service, latency and queues over time. Needs matplotlib.",
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), default=80.0, help="Requests per second (default 80).")
@click.option("--requests", type=click.IntRange(1), default=5000, help="How many requests (default 5000).")
@click.option("--cost", type=click.Choice(list(COSTS)), default="cpu", help=COST_HELP)
@click.option("--noise", type=click.FloatRange(0, 2), default=0.0, help="Sigma of the service time's lognormal noise.")
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "burst", "on-off", "closed", "trace"]),
    default="poisson",
    help="How requests come: poisson, burst (gamma gaps, CV 4), on-off, closed (see --clients), trace (see --trace).",
)
@click.option(
    "--trace", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Azure .csv, Mooncake .jsonl."
)
@click.option("--speed", type=click.FloatRange(0, min_open=True), default=1.0, help="Play a trace so much faster.")
@click.option("--clients", type=click.IntRange(1), default=32, help="Clients of a closed loop (default 32).")
@click.option("--workers", type=click.IntRange(1), default=1, help="Workers (default 1).")
@click.option("--max-batch-size", type=click.IntRange(1), default=32, help="Rows in a batch (default 32).")
@click.option("--max-batch-tokens", type=click.IntRange(0), default=0, help="Padded tokens in a batch; 0: no limit.")
@click.option(
    "--max-queue-delay-ms",
    type=click.FloatRange(0),
    help="Ceiling of waiting for company; not given: derived from --slo-ms, else 5.",
)
@click.option("--slo-ms", type=click.FloatRange(0), default=0.0, help="The latency that is aimed for; 0: none.")
@click.option("--hold", is_flag=True, help="Part batches wait for the queue delay even beside an idle worker.")
@click.option("--timeout-ms", type=click.FloatRange(0), default=0.0, help="Every request's deadline; 0: none.")
@click.option("--tenants", type=TenantShares(), default="default:1", help="Tenants, equally busy, and their weights.")
@click.option("--faults", is_flag=True, help="Workers die, hang, slow down and answer twice; batches and parts fail.")
@click.option("--check", is_flag=True, help="Judge every step by the oracles (slower).")
@click.option("--seed", type=int, default=1, help="The same seed gives the same run (default 1).")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def simulate(
    context: click.Context,
    *,
    llm: bool,
    scenario: Path | None,
    charts: Path | None,
    rate: float,
    requests: int,
    cost: str,
    noise: float,
    arrivals: str,
    trace: Path | None,
    speed: float,
    clients: int,
    workers: int,
    max_batch_size: int,
    max_batch_tokens: int,
    max_queue_delay_ms: float | None,
    slo_ms: float,
    hold: bool,
    timeout_ms: float,
    tenants: tuple[tuple[str, float], ...],
    faults: bool,
    check: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Run the scheduler in virtual time and report latency, throughput, batches and outcomes.

    Lengths are lognormal with a median of 44 tokens and at most 256; a trace brings its own.
    """
    if scenario is not None:
        _refuse_beside_a_scenario(context)
        _play(scenario, charts, None if _is_default(context, "seed") else seed, check, as_json)
        return
    if charts is not None:
        raise click.UsageError("--charts and --scenario go together")
    if (arrivals == "trace") != (trace is not None):
        raise click.UsageError("--arrivals trace and --trace FILE go together")
    mix = Mix((KEY,), tuple((name, 1.0) for name, _ in tenants), ms(timeout_ms) if timeout_ms else NEVER)
    shape = COSTS[cost]
    played = Scenario(
        arrivals=_arrivals(arrivals, Random(f"{seed} arrivals"), rate, mix, requests, trace, speed),
        policy=BatchPolicy(
            max_batch_size=max_batch_size,
            max_batch_tokens=max_batch_tokens,
            slo=ms(slo_ms),
            max_queue_delay=ms(MAX_QUEUE_DELAY_MS if max_queue_delay_ms is None else max_queue_delay_ms),
            derive_delay=max_queue_delay_ms is None,
            hold=hold,
        ),
        server=ServerPolicy(tenants=tuple((name, TenantPolicy(weight=weight)) for name, weight in tenants)),
        cost=noisy(shape, Random(f"{seed} noise"), noise) if noise else shape,
        workers=workers,
        clients=clients if arrivals == "closed" else 0,
        faults=FAULTS if faults else NO_FAULTS,
        seed=seed,
        checked=check,
    )
    try:
        report = run(played)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    click.echo(json.dumps(report.as_json(), indent=2) if as_json else as_table(report))


def _arrivals(
    kind: str, rng: Random, rate: float, mix: Mix, count: int, trace: Path | None, speed: float
) -> Iterator[Arrival]:
    if trace is not None:
        return workloads.traced(rng, islice(workloads.read_trace(trace), count), mix, speed)
    gaps = {
        "burst": workloads.bursty(rng, rate, cv=4),
        "on-off": workloads.on_off(rng, rate, BURST, BURST),
    }
    return workloads.open_loop(rng, gaps.get(kind) or workloads.poisson(rng, rate), mix, count)


def _is_default(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)


def _refuse_beside_a_scenario(context: click.Context) -> None:
    given = [name for name in context.params if name not in WITH_A_SCENARIO and not _is_default(context, name)]
    if given:
        options = ", ".join("--" + name.replace("_", "-") for name in given)
        raise click.UsageError(f"{options}: the scenario's file says that")


def _play(file: Path, charts: Path | None, seed: int | None, check: bool, as_json: bool) -> None:
    timeline = Timeline()
    try:
        scenario = read_scenario(file, seed=seed, checked=check)
        if charts:
            require_plots()
        report = simulate_tenants(scenario, timeline=timeline)
        weights = {name: policy.weight for name, policy in scenario.tenants.items()}
        drawn = draw(timeline, weights, charts) if charts else []
    except (ConfigError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    except (NoPlots, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(json.dumps(report.as_json(), indent=2) if as_json else tenants_table(report))
    for path in drawn:
        click.echo(f"drawn: {path}", err=True)

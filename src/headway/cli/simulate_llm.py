"""`headway simulate --llm`: the planner of a language model's steps in virtual time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import click

from headway.cli.charts import NoPlots, require_plots
from headway.cli.llm_charts import draw
from headway.cli.tenant_shares import TenantShares
from headway.core.units import NEVER, ms
from headway.core.units import seconds as in_ns
from headway.llm.plan.policy import Admit, PlanPolicy
from headway.sim.llm import synthetic, traces
from headway.sim.llm.arrivals import Arrival
from headway.sim.llm.baselines import SCHEDULERS
from headway.sim.llm.presets import PRESETS, Preset
from headway.sim.llm.recorder import Recorder
from headway.sim.llm.report import LlmReport, as_comparison, as_table
from headway.sim.llm.simulation import LlmScenario, simulate
from headway.sim.llm.synthetic import Client, Lengths
from headway.sim.timeline import Timeline

LOAD = 0.8
REQUESTS = 1000
GREEDY_SECONDS = 120.0
WORKLOADS = ("chat", "greedy")
SCHEDULER_HELP = (
    "Who decides (default headway); several are compared. first-come: the planner, all as one tenant. unlimited: the"
    " same, admitting whatever fits now. fixed-chunk: 512 tokens a step. prefill-first: whole prompts before streams."
    " static: who is admitted runs to the end first."
)


@dataclass(frozen=True, slots=True)
class Load:
    """How fast requests come: one of them, or none for LOAD."""

    load: float | None
    rate: float | None
    speed: float | None

    def of(self, preset: Preset, prompt: float, output: float, engines: int) -> float:
        """Requests a second."""
        return self.rate or (self.load or LOAD) * engines * preset.capacity(prompt, output)


@click.command()
@click.option("--llm", is_flag=True, help="This command, instead of batches of fixed cost.")
@click.option(
    "--preset", type=click.Choice(list(PRESETS)), default="a100-8b", help="Device and model (default a100-8b)."
)
@click.option("--engines", type=click.IntRange(1), default=1, help="Engines, each such a device (default 1).")
@click.option("--scheduler", "schedulers", type=click.Choice(list(SCHEDULERS)), multiple=True, help=SCHEDULER_HELP)
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Times and lengths of real traffic: Azure .csv, Mooncake .jsonl (shared prefixes too).",
)
@click.option(
    "--workload",
    type=click.Choice(WORKLOADS),
    default="chat",
    help="Without a trace. chat: Poisson, lognormal lengths. greedy: one tenant asks for twice what there is, another"
    " for a quarter of it.",
)
@click.option("--load", type=click.FloatRange(0, min_open=True), help="Of the device's capacity (default 0.8).")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Requests per second, instead of --load.")
@click.option("--speed", type=click.FloatRange(0, min_open=True), help="Play a trace so much faster, instead.")
@click.option("--requests", type=click.IntRange(1), help="The first so many (default 1000; of greedy, all).")
@click.option(
    "--seconds", type=click.FloatRange(0, min_open=True), help="Those of the first so many seconds (of greedy, 120)."
)
@click.option("--prompt", type=click.IntRange(1), default=500, help="Median prompt of chat, in tokens (default 500).")
@click.option("--output", type=click.IntRange(1), default=130, help="Median answer of chat, in tokens (default 130).")
@click.option("--shared", type=click.IntRange(0), default=0, help="Tokens that all prompts of a tenant begin with.")
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    help="What requests ask for (default: of a trace 2048, of chat eight median answers).",
)
@click.option("--tenants", type=TenantShares(), default="default:1", help="Tenants, equally busy, and their weights.")
@click.option("--first-token-ms", type=click.FloatRange(0, min_open=True), help="Every request's deadline for it.")
@click.option("--target-itl-ms", type=click.FloatRange(0, min_open=True), help="Between tokens; else the preset's.")
@click.option("--admit", type=click.Choice([admit.value for admit in Admit]), help="How KV blocks are counted on.")
@click.option("--max-sequences", type=click.IntRange(1), help="That run at once; else the preset's.")
@click.option("--max-step-tokens", type=click.IntRange(1), help="Of one step; else the preset's.")
@click.option("--blocks", type=click.IntRange(1), default=None, help="Of 16 tokens; else what the memory leaves.")
@click.option("--no-prefix-cache", is_flag=True, help="Prompts share nothing.")
@click.option(
    "--late-ms",
    type=click.FloatRange(0),
    default=2.0,
    help="A step is planned so long before the one that runs ends (default 2); 0: as soon as that has begun.",
)
@click.option("--noise", type=click.FloatRange(0, 2), default=0.0, help="Sigma of the step time's lognormal noise.")
@click.option("--seed", type=int, default=1, help="The same seed gives the same run (default 1).")
@click.option(
    "--charts",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for charts of service, first tokens, queues and KV blocks over time. Needs matplotlib.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def simulate_llm(
    *,
    llm: bool,
    preset: str,
    engines: int,
    schedulers: tuple[str, ...],
    trace: Path | None,
    workload: str,
    load: float | None,
    rate: float | None,
    speed: float | None,
    requests: int | None,
    seconds: float | None,
    prompt: int,
    output: int,
    shared: int,
    max_tokens: int | None,
    tenants: tuple[tuple[str, float], ...],
    first_token_ms: float | None,
    target_itl_ms: float | None,
    admit: str | None,
    max_sequences: int | None,
    max_step_tokens: int | None,
    blocks: int | None,
    no_prefix_cache: bool,
    late_ms: float,
    noise: float,
    seed: int,
    charts: Path | None,
    as_json: bool,
) -> None:
    """Run the planner of language model engines in virtual time and report latency, throughput and KV use."""
    if sum(value is not None for value in (load, rate, speed)) > 1:
        raise click.UsageError("--load, --rate and --speed exclude each other")
    if speed is not None and trace is None:
        raise click.UsageError("--speed and --trace go together")
    if max_tokens is not None and workload == "greedy" and trace is None:
        raise click.UsageError("what the greedy workload asks for is fixed: --max-tokens does not go with it")
    device = PRESETS[preset]
    pace = Load(load, rate, speed)
    names = tuple(name for name, _ in tenants)
    greedy = workload == "greedy" and trace is None
    if greedy:
        seconds = seconds or GREEDY_SECONDS
    count = requests or (None if greedy else REQUESTS)
    try:
        scenario = LlmScenario(
            device,
            _policy(device.policy, admit, target_itl_ms, max_sequences, max_step_tokens, not no_prefix_cache),
            blocks or 0,
            engines,
            dict(tenants),
            noise,
            seed,
            late=ms(late_ms),
            until=in_ns(seconds) if greedy and seconds else NEVER,
        )
        if trace is not None:
            coming = _traced(trace, scenario, pace, names, count, seconds, max_tokens or traces.MAX_TOKENS)
        else:
            coming = _invented(
                workload,
                scenario,
                pace,
                names,
                seconds,
                Lengths(prompt, 1.0, 32 * prompt),
                output,
                shared,
                max_tokens or 8 * output,
            )
        arrivals = list(islice(coming, count))
        if first_token_ms:
            arrivals = [replace(arrival, first_within=ms(first_token_ms)) for arrival in arrivals]
        if charts:
            require_plots()
        reports, timelines = _play(scenario, arrivals, schedulers or ("headway",))
        drawn = draw(timelines, charts) if charts else []
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except (NoPlots, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(_shown(reports, as_json))
    for path in drawn:
        click.echo(f"drawn: {path}", err=True)


def _policy(
    policy: PlanPolicy,
    admit: str | None,
    target_itl_ms: float | None,
    max_sequences: int | None,
    max_step_tokens: int | None,
    prefix_cache: bool,
) -> PlanPolicy:
    """ValueError where they contradict each other."""
    return replace(
        policy,
        admit=Admit(admit) if admit else policy.admit,
        target_itl=ms(target_itl_ms) if target_itl_ms else policy.target_itl,
        max_sequences=max_sequences or policy.max_sequences,
        max_step_tokens=max_step_tokens or policy.max_step_tokens,
        prefix_cache=prefix_cache,
    )


def _traced(
    file: Path,
    scenario: LlmScenario,
    pace: Load,
    names: tuple[str, ...],
    count: int | None,
    seconds: float | None,
    max_tokens: int,
) -> Iterator[Arrival]:
    """seconds: of the trace as it is played."""
    tenants = tuple((name, 1.0) for name in names)
    rows = list(islice(traces.read(file, tenants, scenario.seed, max_tokens), count))
    speed = pace.speed
    if speed is None:
        speed = pace.of(scenario.preset, *traces.lengths(rows), scenario.engines) / traces.rate(rows)
    played = traces.paced(rows, speed)
    return synthetic.for_a_while(played, seconds) if seconds else played


def _invented(
    workload: str,
    scenario: LlmScenario,
    pace: Load,
    names: tuple[str, ...],
    seconds: float | None,
    prompt: Lengths,
    output: int,
    shared: int,
    max_tokens: int,
) -> Iterator[Arrival]:
    if workload == "greedy":
        capacity = scenario.preset.capacity(256, 256) * scenario.engines
        clients = synthetic.greedy_and_polite(pace.rate or (pace.load or 1.0) * capacity, seconds or GREEDY_SECONDS)
        return synthetic.arrivals(clients, scenario.seed)
    answers = Lengths(output, 0.8, 8 * output)
    rate = pace.of(scenario.preset, prompt.mean, answers.mean, scenario.engines) / len(names)
    clients = tuple(Client(name, rate, prompt, answers, max_tokens, shared) for name in names)
    coming = synthetic.arrivals(clients, scenario.seed)
    return synthetic.for_a_while(coming, seconds) if seconds else coming


def _play(
    scenario: LlmScenario, arrivals: list[Arrival], schedulers: tuple[str, ...]
) -> tuple[dict[str, LlmReport], dict[str, Recorder]]:
    reports: dict[str, LlmReport] = {}
    recorders: dict[str, Recorder] = {}
    for name in schedulers:
        recorders[name] = Recorder(scenario.weight, Timeline())
        reports[name] = simulate(scenario, arrivals, SCHEDULERS[name], recorder=recorders[name])
    return reports, recorders


def _shown(reports: dict[str, LlmReport], as_json: bool) -> str:
    if as_json:
        all_of_them = {name: report.as_json() for name, report in reports.items()}
        return json.dumps(next(iter(all_of_them.values())) if len(reports) == 1 else all_of_them, indent=2)
    if len(reports) == 1:
        return as_table(next(iter(reports.values())))
    return as_comparison(reports)

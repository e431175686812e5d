"""`headway verify`: whether a model answers a row in a batch as it answers it alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from headway.cli.common import models_option, read_all
from headway.config.errors import nearest
from headway.registry.placement import available_cores, share_threads
from headway.registry.spec import VersionSpec, default_versions
from headway.wire import safety_text
from headway.wire.messages import Load
from headway.wire.safety import NOT_JUDGED, OFF, SAFE, UNBATCHED, SafetyReport

EXIT_SAFE, EXIT_NOT_SAFE, EXIT_NOT_JUDGED = 0, 1, 2


@click.command()
@click.argument("name")
@click.option("--config", type=click.Path(path_type=Path), default=None, help="./headway.toml if not named.")
@models_option
@click.option("--version", type=click.IntRange(1), default=None, help="Not named: the version answered by default.")
@click.option(
    "--seconds", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True, help="What it may take."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def verify(
    name: str, config: Path | None, models: Path | None, version: int | None, seconds: float, as_json: bool
) -> None:
    """Load the model NAME in a process of its own, answer made-up rows alone and in batches, and compare.

    Where batch_invariant is set, also whether answers are bit-equal in any company. A Python model gets made-up inputs
    too; put probes.json into the version's folder to say which inputs it gets instead.

    Exit codes: 0 safe, 1 not safe, 2 it could not be judged (or loaded).
    """
    read, specs = read_all(config, models)
    cores = available_cores(read.settings.server.threads)
    threads = dict(zip((spec.name for spec in specs), share_threads(specs, cores), strict=True))
    spec = wanted(specs, name, version)
    try:
        report = run(spec, threads[spec.name], seconds, read.settings.workers.start_timeout_s)
    except NotRun as why:
        click.echo(f"{spec.name}: {why}", err=True)
        sys.exit(EXIT_NOT_JUDGED)
    click.echo(msgspec.json.encode(report).decode() if as_json else "\n".join(page(spec.name, report)))
    sys.exit(exit_code(report))


def wanted(specs: list[VersionSpec], name: str, version: int | None) -> VersionSpec:
    """Raises UsageError for a model or version that is not there."""
    mine = {spec.version: spec for spec in specs if spec.model == name}
    if not mine:
        names = list(dict.fromkeys(spec.model for spec in specs))
        close = nearest(name, names)
        hint = f"did you mean {close!r}?" if close else f"there are: {', '.join(names)}"
        raise click.UsageError(f"no model {name!r} here; {hint}")
    chosen = mine.get(version or default_versions(specs)[name])
    if chosen is None:
        raise click.UsageError(f"model {name!r} has no version {version}; it has: {', '.join(map(str, mine))}")
    return chosen


class NotRun(Exception):
    """Why there is no report."""


def run(spec: VersionSpec, threads: int, seconds: float, start_timeout_s: float) -> SafetyReport:
    """Raises NotRun where it does not load, or dies, or takes far too long. Its log goes to our stderr."""
    load = Load(
        worker=0,
        model=spec.model,
        version=spec.version,
        path=spec.path,
        executor=spec.executor,
        device=spec.settings.device,
        threads=threads,
        settings=msgspec.to_builtins(spec.settings),
    )
    message = msgspec.json.encode({"load": load, "seconds": seconds})
    command = [sys.executable, "-m", "headway.worker.safety_main", "--threads", str(threads)]
    limit = start_timeout_s + 3 * seconds
    try:
        done = subprocess.run(command, input=message, stdout=subprocess.PIPE, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise NotRun(f"could not be judged: it was not done within {limit:g} s, and was ended") from None
    if done.returncode:
        raise NotRun(f"could not be judged: it does not load, see above (exit code {done.returncode})")
    return msgspec.json.decode(done.stdout, type=SafetyReport)


def page(name: str, report: SafetyReport) -> Iterator[str]:
    first, *rest = safety_text.lines(report)
    yield f"{name}: {first}"
    yield from (f"  {line}" for line in rest)


def exit_code(report: SafetyReport) -> int:
    if report.verdict in (NOT_JUDGED, OFF):
        return EXIT_NOT_JUDGED
    unkept = report.invariant is not None and report.mode == UNBATCHED
    if report.verdict != SAFE or unkept:
        return EXIT_NOT_SAFE
    return EXIT_SAFE

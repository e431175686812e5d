"""`headway replay`: does the core decide again as it did?"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headway.core.scheduler import Scheduler
from headway.core.units import SECOND
from headway.runtime.codec import NotARecording
from headway.runtime.replay import Difference, Report
from headway.runtime.replay import replay as replay_file

SHOWN = 20
"""Events and effects of a difference that are printed."""


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--stats", is_flag=True, help="Also count events and effects by kind.")
@click.option(
    "--check-every",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Calls between two checks of the core's invariants.",
)
def replay(files: tuple[Path, ...], stats: bool, check_every: int) -> None:
    """Run recordings through the scheduler's core again and compare every effect.

    Exit code 0: all reproduced. 1: something differs; the first difference of each file is printed.
    """
    same = True
    for path in files:
        try:
            report = replay_file(path, Scheduler.restore, check_every)
        except (NotARecording, OSError) as error:
            raise click.UsageError(f"{path}: {error}") from None
        _print_report(report, stats)
        same = same and report.difference is None
    sys.exit(0 if same else 1)


def _print_report(report: Report, stats: bool) -> None:
    verdict = "reproduced" if report.difference is None else "DIFFERS"
    click.echo(
        f"{report.path}: {verdict}; {report.calls} calls, {report.events.total()} events, "
        f"{report.effects.total()} effects in {report.span / SECOND:.3f} s, recorded by headway {report.headway}"
    )
    if report.cut_off:
        click.echo("  the last line is incomplete: the server did not end by itself")
    if report.raised:
        click.echo(f"  it ends with an error, reproduced: {report.raised}")
    if stats:
        for title, counts in (("events", report.events), ("effects", report.effects)):
            for name, count in sorted(counts.items()):
                click.echo(f"  {title:8} {name:24} {count}")
    if report.difference is not None:
        _print_difference(report.difference)


def _print_difference(difference: Difference) -> None:
    click.echo(f"  line {difference.line}, at {difference.call.now} ns: {difference.problem}")
    _print_list("events", [repr(event) for event in difference.call.events])
    _print_list("recorded", difference.recorded)
    _print_list("replayed", difference.replayed)


def _print_list(title: str, items: list[str]) -> None:
    click.echo(f"  {title} ({len(items)}):")
    for item in items[:SHOWN]:
        click.echo(f"    {item}")
    if len(items) > SHOWN:
        click.echo(f"    ... and {len(items) - SHOWN} more")

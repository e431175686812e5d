"""Charts of a simulated scenario as PNG files: service, latency and queue of each tenant over time.

Needs matplotlib: pip install 'headway[plots]'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headway.core.ids import Tenant
from headway.core.units import MILLISECOND, SECOND
from headway.sim.report import percentile
from headway.sim.timeline import Step, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#1b6ca8", "#d1495b", "#2a9d8f", "#e9a13b", "#6a4c93", "#7f7f7f", "#8c564b", "#17becf")
POINTS = 120
"""Of one line, at most: a minute in halves of seconds."""


class NoPlots(Exception):
    """matplotlib is not there. Says what to install."""


def require_plots() -> None:
    """Before anything is simulated that could not be drawn. Raises NoPlots."""
    try:
        import matplotlib
    except ImportError as error:
        raise NoPlots("charts need matplotlib: pip install 'headway[plots]'") from error
    matplotlib.use("Agg")


def draw(timeline: Timeline, weights: dict[Tenant, float], folder: Path) -> list[Path]:
    """Writes service.png, latency.png and queue.png; returns their paths. Raises NoPlots, OSError."""
    require_plots()
    folder.mkdir(parents=True, exist_ok=True)
    series = Series(timeline, list(weights))
    pictures = {"service": _service(series, weights), "latency": _latency(series), "queue": _queue(series)}
    return [save(figure, folder / f"{name}.png") for name, figure in pictures.items()]


class Series:
    """The timeline in at most POINTS steps. width: of one, in seconds."""

    def __init__(self, timeline: Timeline, tenants: Sequence[Tenant]) -> None:
        last = max((number for steps in timeline.steps.values() for number in steps), default=0)
        self._merged = max(1, -(-(last + 1) // POINTS))
        self._timeline = timeline
        self._count = last // self._merged + 1
        self.tenants = tenants
        self.width = self._merged * timeline.step / SECOND
        self.times = [(number + 0.5) * self.width for number in range(self._count)]

    def of(self, tenant: Tenant) -> Iterator[Step]:
        """Its steps, those in which nothing was included."""
        steps = self._timeline.steps.get(tenant, {})
        for number in range(self._count):
            merged = Step()
            for at in range(number * self._merged, (number + 1) * self._merged):
                if (step := steps.get(at)) is not None:
                    merged.service += step.service
                    merged.queue = max(merged.queue, step.queue)
                    merged.latencies += step.latencies
            yield merged


def _service(series: Series, weights: dict[Tenant, float]) -> Figure:
    """Above: parts of the device over time, stacked. Below: service / weight, whose slopes are equal where all wait."""
    figure, (above, below) = new_figure(2)
    rates = [[step.service / SECOND / series.width for step in series.of(tenant)] for tenant in series.tenants]
    above.stackplot(series.times, rates, colors=colours(series), labels=series.tenants, alpha=0.85, lw=0)
    above.set_ylabel("device seconds per second")
    above.set_title("What each tenant received")
    above.set_ylim(bottom=0)
    for tenant, rate, colour in zip(series.tenants, rates, colours(series), strict=True):
        total, line = 0.0, []
        for each in rate:
            total += each * series.width / weights[tenant]
            line.append(total)
        below.plot(series.times, line, color=colour, label=f"{tenant} (weight {weights[tenant]:g})")
    below.set_ylabel("device seconds / weight, so far")
    below.set_ylim(bottom=0)
    return finish(figure, (above, below), series)


def _latency(series: Series) -> Figure:
    figure, (axes,) = new_figure(1)
    for tenant, colour in zip(series.tenants, colours(series), strict=True):
        for share, style in ((0.5, "-"), (0.99, ":")):
            values = [percentile(sorted(step.latencies), share) / MILLISECOND for step in series.of(tenant)]
            shown = [value or float("nan") for value in values]
            axes.plot(series.times, shown, style, color=colour, label=tenant if share == 0.5 else None)
    axes.set_yscale("log")
    axes.set_ylabel("ms from arrival to answer")
    axes.set_title("Latency of what was answered: p50 (line) and p99 (dots)")
    return finish(figure, (axes,), series)


def _queue(series: Series) -> Figure:
    figure, (axes,) = new_figure(1)
    for tenant, colour in zip(series.tenants, colours(series), strict=True):
        axes.plot(series.times, [step.queue for step in series.of(tenant)], color=colour, label=tenant)
    axes.set_yscale("symlog", linthresh=10)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("parts that wait, at most")
    axes.set_title("Queues")
    return finish(figure, (axes,), series)


def new_figure(rows: int) -> tuple[Figure, Sequence[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.6 + 3.1 * rows))
    return figure, list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])


def colours(series: Series) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(len(series.tenants))]


def finish(figure: Figure, rows: Sequence[Axes], series: Series) -> Figure:
    for axes in rows:
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
        axes.set_xlim(0, series.times[-1] + series.width / 2)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    rows[-1].set_xlabel("seconds of virtual time")
    return figure


def save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": ""})
    return path

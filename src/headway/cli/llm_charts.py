"""Charts of simulated language model engines as PNG files: what each tenant received, first tokens, queues, KV blocks.

A panel for each scheduler that was tried, all on the same scales. Needs matplotlib: pip install 'headway[plots]'.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.charts import COLOURS, Series, colours, finish, new_figure, require_plots, save
from headway.core.units import MILLISECOND
from headway.sim.llm.recorder import Recorder
from headway.sim.report import percentile
from headway.sim.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(recorders: dict[str, Recorder], folder: Path) -> list[Path]:
    """By scheduler. Writes service.png, received.png, first-token.png, queue.png, kv.png; returns their paths. Raises
    NoPlots, OSError; ValueError where a recorder has no timeline."""
    require_plots()
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {
        "service": _panels(recorders, _service, "priced tokens per second", "What each tenant received"),
        "received": _panels(recorders, _received, "priced tokens / weight, so far", "What each tenant received in all"),
        "first-token": _panels(
            recorders, _first_token, "ms to the first token", "First tokens: p50 (line), p99 (dots)"
        ),
        "queue": _panels(recorders, _queue, "sequences that wait, at most", "Queues"),
        "kv": _panels(recorders, _kv, "share of blocks held, at most", "KV blocks"),
    }
    return [save(figure, folder / f"{name}.png") for name, figure in pictures.items()]


Panel = Callable[["Axes", Series, Recorder], None]


def _panels(recorders: dict[str, Recorder], panel: Panel, label: str, title: str) -> Figure:
    figure, rows = new_figure(len(recorders))
    last = None
    for axes, (name, recorder) in zip(rows, recorders.items(), strict=True):
        last = Series(_timeline(recorder), sorted(recorder.tenants))
        panel(axes, last, recorder)
        axes.set_ylabel(label)
        axes.set_title(f"{title} ({name})" if len(recorders) > 1 else title)
        axes.set_ylim(bottom=0 if axes.get_yscale() != "log" else None)
    assert last is not None
    least, most = (list(limits) for limits in zip(*(axes.get_ylim() for axes in rows), strict=True))
    for axes in rows:
        axes.set_ylim(min(least), max(most))
    longest = max((Series(_timeline(r), sorted(r.tenants)) for r in recorders.values()), key=lambda s: s.times[-1])
    return finish(figure, rows, longest)


def _timeline(recorder: Recorder) -> Timeline:
    if recorder.timeline is None:
        raise ValueError("a recorder without a timeline has nothing to draw")
    return recorder.timeline


def _service(axes: Axes, series: Series, recorder: Recorder) -> None:
    for tenant, colour in zip(series.tenants, colours(series), strict=True):
        axes.plot(series.times, [step.service / series.width for step in series.of(tenant)], color=colour, label=tenant)


def _received(axes: Axes, series: Series, recorder: Recorder) -> None:
    for tenant, colour in zip(series.tenants, colours(series), strict=True):
        weight = recorder.tenants[tenant].weight
        total, line = 0.0, []
        for step in series.of(tenant):
            total += step.service / weight
            line.append(total)
        axes.plot(series.times, line, color=colour, label=f"{tenant} (weight {weight:g})")


def _first_token(axes: Axes, series: Series, recorder: Recorder) -> None:
    for tenant, colour in zip(series.tenants, colours(series), strict=True):
        for share, style in ((0.5, "-"), (0.99, ":")):
            values = [percentile(sorted(step.latencies), share) / MILLISECOND for step in series.of(tenant)]
            shown = [value or float("nan") for value in values]
            axes.plot(series.times, shown, style, color=colour, label=tenant if share == 0.5 else None)
    axes.set_yscale("log")


def _queue(axes: Axes, series: Series, recorder: Recorder) -> None:
    for tenant, colour in zip(series.tenants, colours(series), strict=True):
        axes.plot(series.times, [step.queue for step in series.of(tenant)], color=colour, label=tenant)


def _kv(axes: Axes, series: Series, recorder: Recorder) -> None:
    step = _timeline(recorder).step
    times = [(number + 0.5) * step / 1e9 for number in recorder.kv_steps]
    axes.plot(times, list(recorder.kv_steps.values()), color=COLOURS[0], label="held", lw=0.8)
    axes.set_ylim(0, 1.02)

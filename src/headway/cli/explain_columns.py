"""Columns and figures of the page of `headway explain`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def columns(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Aligned; figures to the right. A heading without a word is left out."""
    table = [heading, *rows] if any(heading) else list(rows)
    widths = [max(len(row[i]) for row in table) for i in range(len(heading))]
    right = [bool(rows) and all(is_figure(row[i]) for row in rows) for i in range(len(heading))]
    for row in table:
        cells = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        yield "  ".join(cells).rstrip()


def is_figure(text: str) -> bool:
    return text[:1].isdigit() or text[:1] == "-"


def figure(value: float) -> str:
    """Three digits, or all of those before the point."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"

"""`headway simulate --scenario`: what is wrong is told before anything is simulated."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headway.cli import simulate


@pytest.fixture(autouse=True)
def _nothing_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("it was simulated")

    monkeypatch.setattr(simulate, "simulate_tenants", never)


def run(folder: Path, text: str, *more: str) -> Result:
    file = folder / "s.toml"
    file.write_text(text)
    return CliRunner().invoke(simulate.simulate, ["--scenario", str(file), *more])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "s.toml: tenants: expected a table, it is missing"),
        ("[tenants.a]\n[[tenants.a.load]]\nrate = 3", "tenants.a.load[0].kind: expected one of "),
    ],
)
def test_what_a_scenario_cannot_do_without_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    result = run(tmp_path, text)
    assert result.exit_code == 2 and told in result.output


def test_a_load_that_would_never_come_is_told_with_both_numbers(tmp_path: Path) -> None:
    load = "[[tenants.a.load]]\nkind = 'poisson'\nrate = 3\n"
    result = run(tmp_path, f"[tenants.a]\n{load}start_s = 60\n{load}start_s = 20\nstop_s = 10\n")
    assert "tenants.a.load[0].start_s: expected less than duration_s, 60; got 60" in result.output
    assert "tenants.a.load[1].stop_s: expected more than start_s, 20; got 10" in result.output


def test_charts_that_cannot_be_drawn_are_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = "[tenants.a]\n[[tenants.a.load]]\nkind = 'poisson'\nrate = 3"
    result = run(tmp_path, text, "--charts", str(tmp_path / "charts"))
    assert result.exit_code == 1 and "charts need matplotlib" in result.output
    assert not (tmp_path / "charts").exists()

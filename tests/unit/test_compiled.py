"""What was compiled is used for the sources that it was made of, and for no others."""

from __future__ import annotations

import sys
from pathlib import Path
from runpy import run_path

import pytest

from headway import compiled

TOOL = Path(__file__).parents[2] / "tools" / "compile.py"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that has been compiled."""
    for package in (*compiled.PACKAGES, *compiled.READ):
        (tmp_path / package).mkdir()
        (tmp_path / package / "one.py").write_text("A = 1\n")
    folder = tmp_path / "_compiled"
    folder.mkdir()
    (folder / compiled.DIGEST).write_text(compiled.digest(tmp_path))
    monkeypatch.setattr(compiled, "FOLDER", folder)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv("HEADWAY_COMPILED", "1")
    return tmp_path


def found(checkout: Path) -> bool:
    path = [str(checkout)]
    compiled.use(path)
    return path[0] == str(checkout / "_compiled")


def test_it_is_found_before_the_sources(checkout: Path) -> None:
    assert found(checkout)
    assert compiled.in_use()


@pytest.mark.parametrize("package", (*compiled.PACKAGES, *compiled.READ))
def test_after_an_edit_the_sources_are_run(checkout: Path, package: str) -> None:
    (checkout / package / "one.py").write_text("A = 2\n")
    assert not found(checkout)
    assert not compiled.in_use()


def test_a_module_more_is_an_edit_too(checkout: Path) -> None:
    (checkout / "core" / "two.py").write_text("")
    assert not found(checkout)


def test_what_is_chosen_to_be_compiled_is_there() -> None:
    tool = run_path(str(TOOL))
    assert set(tool["CHOSEN"]) < set(compiled.PACKAGES)
    for package, chosen in tool["CHOSEN"].items():
        assert [file.stem for file in tool["modules_of"](tool["SOURCE"], package)] == sorted(chosen)


def test_another_python_runs_the_sources(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.implementation, "cache_tag", "cpython-399")
    assert not found(checkout)


def test_it_can_be_switched_off(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_COMPILED", "0")
    assert not found(checkout)


def test_without_it_the_sources_are_run(checkout: Path) -> None:
    (checkout / "_compiled" / compiled.DIGEST).unlink()
    assert not found(checkout)

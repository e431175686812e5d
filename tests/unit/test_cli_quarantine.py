"""The command that shows what is in quarantine and lets it in again."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from headway.cli import quarantine as command
from headway.cli.main import main
from headway.cli.quarantine import page

ENTRY = {
    "model": "m",
    "version": "1",
    "content": "0000000000000abc",
    "for_s": 12.4,
    "left_s": 587.6,
    "request": 7,
    "tenant": "acme",
    "cause": "signal SIGSEGV",
}


def asked(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], *arguments: str) -> tuple[str, list[Any]]:
    """What is printed, and what was asked of the server."""
    requests: list[Any] = []

    def ask(server: Any, path: str, headers: dict[str, str], method: str = "GET") -> dict[str, Any]:
        requests.append((method, path, headers))
        return answer

    monkeypatch.setattr(command, "ask", ask)
    done = CliRunner().invoke(main, ["quarantine", *arguments])
    assert done.exit_code == 0, done.output
    return done.output, requests


def test_what_is_in_quarantine_is_listed_with_whose_it_was_and_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, requests = asked(monkeypatch, {"quarantine": [ENTRY]}, "list")
    assert requests == [("GET", "/quarantine", {})]
    last = shown.splitlines()[-1].split()
    assert last == ["m/1", "0000000000000abc", "12", "588", "acme", "signal", "SIGSEGV"]


def test_an_empty_quarantine_is_said_to_be_empty() -> None:
    assert list(page({"quarantine": []})) == ["nothing is in quarantine"]


def test_one_content_is_lifted_by_its_name_and_all_of_a_version_without(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, requests = asked(monkeypatch, {"lifted": 1}, "lift", "a b", "1", "abc", "--key", "hw_k")
    assert (shown, requests) == (
        "1 let in again\n",
        [("DELETE", "/quarantine/a%20b/1/abc", {"authorization": "Bearer hw_k"})],
    )
    assert asked(monkeypatch, {"lifted": 3}, "lift", "m", "2")[1] == [("DELETE", "/quarantine/m/2", {})]


def test_a_version_that_is_no_number_is_a_mistake_of_usage() -> None:
    assert CliRunner().invoke(main, ["quarantine", "lift", "m", "one"]).exit_code == 2

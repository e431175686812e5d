"""`headway quarantine`: what a running server refuses because it killed workers, and letting it in again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import click

from headway.cli.announce import ADMIN_KEY
from headway.cli.common import address, cacert_option, insecure_option
from headway.cli.explain import ask
from headway.cli.explain_columns import columns

C = TypeVar("C", bound=Callable[..., Any])
HEADINGS = ("model", "content", "for s", "s left", "tenant", "cause")


def of_a_server(command: C) -> C:
    """The options that say which, and with what key."""
    url = click.option(
        "--url", default="http://127.0.0.1:8000", show_default=True, help="The server, or its admin port."
    )
    key = click.option("--key", envvar=ADMIN_KEY, default="", help=f"An admin key; better in the variable {ADMIN_KEY}.")
    return url(key(cacert_option(insecure_option(command))))


@click.group()
def quarantine() -> None:
    """Requests that killed workers while those ran nothing else are refused for a while, by a hash of their inputs.

    The server answers this to its own host only, unless there is server.admin_port (name that in --url),
    server.admin_keys (a key is wanted) or server.allow_remote_admin.
    """


@quarantine.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the server's answer as it is.")
@of_a_server
def list_(as_json: bool, url: str, key: str, cacert: Path | None, insecure: bool) -> None:
    """Show what is in quarantine, of all models."""
    told = ask(address(url, cacert, insecure), "/quarantine", headers(key))
    click.echo(json.dumps(told, indent=2, ensure_ascii=False) if as_json else "\n".join(page(told)))


@quarantine.command()
@click.argument("model")
@click.argument("version", type=click.IntRange(1))
@click.argument("content", default="")
@of_a_server
def lift(model: str, version: int, content: str, url: str, key: str, cacert: Path | None, insecure: bool) -> None:
    """Let requests with CONTENT in again, or all that VERSION of MODEL has in quarantine."""
    path = "/".join(quote(step, safe="") for step in (model, str(version), *([content] if content else [])))
    told = ask(address(url, cacert, insecure), f"/quarantine/{path}", headers(key), "DELETE")
    click.echo(f"{told['lifted']} let in again")


def headers(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def page(told: dict[str, Any]) -> Iterator[str]:
    entries = told["quarantine"]
    if not entries:
        yield "nothing is in quarantine"
        return
    yield from columns(
        HEADINGS,
        [
            (
                f"{entry['model']}/{entry['version']}",
                entry["content"],
                f"{entry['for_s']:.0f}",
                f"{entry['left_s']:.0f}",
                entry["tenant"],
                entry["cause"],
            )
            for entry in entries
        ],
    )

"""The command `headway`. One command per file, imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from headway import __version__
from headway.config.errors import ConfigError

COMMANDS = {
    "serve": "Serve the models of a repository over HTTP.",
    "check": "Check a configuration and its model repository without starting anything.",
    "init": "Write a small repository to start from: models, settings, requests to paste.",
    "keys": "Make API keys for tenants and operators.",
    "explain": "Show what is in force for a model of a running server, who decided it, and what was learned.",
    "quarantine": "List requests that are refused because they killed workers, and let them in again.",
    "verify": "Try whether a model answers a row in a batch as it answers it alone.",
    "bench": "Put load on a server and report latency, throughput and errors.",
    "simulate": "Run the scheduler in virtual time against an invented load.",
    "replay": "Run a recorded trace through the scheduler again and compare.",
    "version": "Print the version.",
}
"""Command -> what it is for; the command NAME is `NAME` in headway.cli.NAME."""


class ConfigurationProblem(click.ClickException):
    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(self.format_message(), err=True)


class Commands(click.Group):
    """Imports a command when it is asked for, so that `headway version` does not wait for numpy."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"headway.cli.{name}"), name)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except ConfigError as error:
            raise ConfigurationProblem(str(error)) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="headway %(version)s")
def main() -> None:
    """An inference server whose heart is a pure scheduler.

    Exit codes: 0 all is well, 1 headway's own fault, 2 usage or configuration.
    """

"""`headway version`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

import click

from headway import __version__

SHOWN = ("onnxruntime", "numpy", "uvloop", "httptools", "msgspec", "tokenizers")


@click.command()
def version() -> None:
    """Print the version, and those of what it stands on."""
    click.echo(f"headway {__version__}")
    click.echo(f"python {platform.python_version()} on {platform.system().lower()} {platform.machine()}")
    for package in SHOWN:
        try:
            click.echo(f"{package} {installed(package)}")
        except PackageNotFoundError:
            click.echo(f"{package} is not installed")

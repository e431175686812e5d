"""`headway init`: a repository that serves at once, to change into one's own."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from headway.cli.tiny_onnx import affine
from headway.config.errors import ConfigError, Problem


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
def init(directory: Path) -> None:
    """Write two small models, one of them in two versions, settings, and the requests that they answer, to DIR.

    Files that are there already are never overwritten: then nothing is written.
    """
    skeleton = dict(contents())
    there = [name for name in skeleton if (directory / name).exists()]
    if there:
        raise ConfigError(Problem(str(directory / name), "", "is there already; nothing was written") for name in there)
    for name, data in skeleton.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    click.echo("\n".join(str(directory / name) for name in skeleton))
    click.echo(f"\nNow:  headway serve {directory / 'headway.toml'}")
    click.echo(f"The requests to try are in {directory / 'README.md'}")


def contents() -> Iterator[tuple[str, bytes]]:
    """Name below DIR, and what is written there."""
    yield from walk(files("headway.cli").joinpath("skeleton"), "")
    yield "models/affine/1/model.onnx", affine(scale=2, offset=1, width=4)
    yield "models/affine/2/model.onnx", affine(scale=3, offset=-1, width=4)


def walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and not entry.name.startswith("__"):
            yield from walk(entry, f"{prefix}{entry.name}/")
        elif entry.is_file():
            yield prefix + entry.name, entry.read_bytes()

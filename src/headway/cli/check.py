"""`headway check`: everything that can be known to be wrong before anything is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from headway.cli.common import model_sources, models_option, read_all, server_sources, warnings
from headway.cli.listen import tls_wrong
from headway.config.explain import explain
from headway.config.load import Config
from headway.registry.placement import available_cores, share_threads
from headway.registry.spec import VersionSpec, default_versions


@click.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@models_option
@click.option("--show", is_flag=True, help="Print every effective setting and where it comes from.")
def check(config: Path | None, models: Path | None, show: bool) -> None:
    """Check CONFIG (./headway.toml if not named) and the model repository it names.

    Every problem is printed with its place; the exit code is 2 if there is one.
    """
    read, specs = read_all(config, models, also=tls_wrong)
    for line in shown(read, specs) if show else summary(read, specs):
        click.echo(line)
    for warning in warnings(read, specs):
        click.echo(f"warning: {warning}", err=True)


def summary(config: Config, specs: list[VersionSpec]) -> Iterator[str]:
    """One line per version: what would be started."""
    cores = available_cores(config.settings.server.threads)
    defaults = default_versions(specs)
    yield f"{config.path or 'the default configuration'} is right; models from {config.models_dir}:"
    for spec, threads in zip(specs, share_threads(specs, cores), strict=True):
        marks = " (default)" if defaults[spec.model] == spec.version else ""
        workers = f"{spec.settings.instances} worker{'s' if spec.settings.instances > 1 else ''}"
        yield f"  {spec.name}: {spec.executor} on {spec.settings.device}, {workers} of {threads} thread(s){marks}"


def shown(config: Config, specs: list[VersionSpec]) -> Iterator[str]:
    """The server's settings, then each model's, as TOML."""
    yield from explain(msgspec.structs.replace(config.settings, models={}), server_sources(config))
    for name, spec in {spec.model: spec for spec in specs}.items():
        yield ""
        yield from explain(spec.settings, model_sources(config, name), f'models."{name}"')

"""What several commands do: find the configuration, read it and the model repository, tell all problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import click
import msgspec

from headway.bench.address import Address, AddressError, parse
from headway.config.cross_tenants import keyed
from headway.config.errors import ConfigError, Problem
from headway.config.explain import Source
from headway.config.load import Config, load_config, read_toml
from headway.config.settings import Settings
from headway.gateway.admin import is_loopback
from headway.registry.placement import available_cores, crowded
from headway.registry.references import wrong_references
from headway.registry.scan import MANIFEST, survey
from headway.registry.spec import VersionSpec
from headway.worker import devices

DEFAULT_FILE = Path("headway.toml")

models_option = click.option(
    "--models",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="The model repository, instead of the configuration's.",
)


cacert_option = click.option(
    "--cacert",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="Of https: the certificates (PEM) to trust, instead of the system's.",
)
insecure_option = click.option("-k", "--insecure", is_flag=True, help="Of https: take any certificate.")


def address(text: str, cacert: Path | None, insecure: bool) -> Address:
    """Raises UsageError."""
    try:
        return parse(text, cacert, insecure)
    except AddressError as error:
        raise click.UsageError(str(error)) from None


def read_all(
    path: Path | None, models: Path | None = None, also: Callable[[Config], list[Problem]] = lambda config: []
) -> tuple[Config, list[VersionSpec]]:
    """The configuration and every version in the repository. Raises ConfigError with the problems of both.

    path: None = ./headway.toml if there is one, else defaults.  models: overrides the configuration's.
    also: finds more problems of a configuration.
    """
    path = path or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    try:
        config, problems = load_config(path), list[Problem]()
    except ConfigError as error:
        config, problems = unchecked(path), list(error.problems)
    if models is not None:
        config = with_server(config, models=str(models.resolve()))
    specs, wrong = survey(config.models_dir, {} if problems else config.overrides)
    problems = [*problems, *also(config), *wrong]
    if not problems:
        problems = wrong_references(config.settings, specs, str(config.path or ""))
    if problems:
        raise ConfigError(problems)
    return config, specs


def unchecked(path: Path | None) -> Config:
    """Enough of a wrong configuration to look for problems in the files that it names too."""
    try:
        written = read_toml(path) if path else {}
    except ConfigError:
        return Config(path)
    server = written.get("server")
    named = (
        {name: server.get(name) for name in ("models", "ssl_certfile", "ssl_keyfile")}
        if isinstance(server, dict)
        else {}
    )
    return with_server(Config(path), **{name: file for name, file in named.items() if isinstance(file, str) and file})


def with_server(config: Config, **settings: object) -> Config:
    """The configuration with some settings of [server] replaced by the command line's."""
    server = msgspec.structs.replace(config.settings.server, **settings)
    given = {"server": {**config.command_line.get("server", {}), **settings}}
    return replace(config, settings=msgspec.structs.replace(config.settings, server=server), command_line=given)


def warnings(config: Config, specs: list[VersionSpec]) -> Iterator[str]:
    """What will work and is hardly meant."""
    yield from crowded(specs, available_cores(config.settings.server.threads))
    held = config.settings.limits.max_queued_mb
    for name, settings in {spec.model: spec.settings for spec in specs}.items():
        if settings.batching.max_batch_mb > held:
            cap = f"batching.max_batch_mb = {settings.batching.max_batch_mb:g}"
            yield f"{name}: {cap} caps nothing: no more than limits.max_queued_mb = {held:g} is ever held"
    yield from open_doors(config.settings)
    for spec in specs:
        absent = devices.absent(spec.settings.device)
        if absent:
            yield f"{spec.name} will not load here: device {spec.settings.device!r}: {absent}"


def open_doors(settings: Settings) -> Iterator[str]:
    """Who gets in, or does not, though it is hardly meant."""
    server = settings.server
    if server.require_keys and not any(tenant.keys for tenant in settings.tenants.values()):
        yield "server.require_keys = true and no tenant has a key: every request for a model is answered with 401"
    if server.admin_port is not None and not server.admin_keys and not is_local(server.admin_host):
        yield (
            f"server.admin_host = {server.admin_host!r} and there are no server.admin_keys: whoever reaches that port "
            "may read metrics and reload"
        )
    clear = not (server.ssl_certfile or server.unix_socket or server.trusted_proxies)
    if keyed(settings) and clear and not is_local(server.host):
        yield f"keys travel in the clear: server.host = {server.host!r} without server.ssl_certfile"


def is_local(host: str) -> bool:
    return host == "localhost" or is_loopback(host)


def server_sources(config: Config) -> list[Source]:
    """Who says what of the server's settings, the strongest first."""
    return [Source("command line", config.command_line, whole=False), Source(str(config.path or ""), config.written)]


def model_sources(config: Config, model: str) -> list[Source]:
    """Who says what of a model's settings, the strongest first."""
    manifest = config.models_dir / model / MANIFEST
    sources = [Source(str(config.path or ""), config.overrides.get(model, {}))]
    return [*sources, Source(str(manifest), read_toml(manifest))] if manifest.is_file() else sources

"""The configuration is read again while the server runs: all that can change changes at once, or nothing does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from headway.config.changes import Change, of_model, of_settings
from headway.config.cross import cross_check_server
from headway.config.cross_tenants import keyed
from headway.config.errors import ConfigError, Problem
from headway.config.load import Config
from headway.config.settings import Settings
from headway.registry.references import of_fallbacks
from headway.registry.spec import VersionSpec

log = logging.getLogger("headway.cli")

Read: TypeAlias = Callable[[], tuple[Config, list[VersionSpec]]]
"""The configuration as it is now, with what the command line says, and the repository. Raises ConfigError."""
Apply: TypeAlias = Callable[[Config, Settings, list[VersionSpec]], None]
"""Is given what was read, for who said what, and what is in force from now on; called on the loop. Raises ConfigError
before it has applied anything."""

UNTIL_THEN = "; needs a restart together with the rest of the file"


class Reloader:
    """config, specs: what the server was started with."""

    def __init__(self, config: Config, specs: Sequence[VersionSpec], read: Read, apply: Apply) -> None:
        self._settings = config.settings
        self._specs = list(specs)
        self._read = read
        self._apply = apply
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self) -> dict[str, Any]:
        """What changed, and what needs a restart. Raises ConfigError, after which everything is as it was."""
        async with self._one_at_a_time:
            try:
                change = self._change(*await asyncio.to_thread(self._read))
            except ConfigError as error:
                for problem in error.problems:
                    log.error("configuration not reloaded: %s", problem)
                raise
        log.info("configuration reloaded; changed: %s", ", ".join(change.changed) or "nothing")
        for place in change.needs_restart:
            log.warning("needs a restart: %s", place)
        return {"reloaded": True, "changed": change.changed, "needs_restart": change.needs_restart}

    def _change(self, read: Config, specs: list[VersionSpec]) -> Change:
        settings, change = of_settings(self._settings, read.settings)
        merged, of_specs = merge(self._specs, specs)
        problems = [*still_keyed(self._settings, settings), *contradictions(settings, merged)]
        if problems:
            raise ConfigError(Problem(str(read.path or ""), place, text) for place, text in problems)
        self._apply(read, settings, merged)
        self._settings, self._specs = settings, merged
        return Change(change.changed + of_specs.changed, change.needs_restart + of_specs.needs_restart)


def merge(old: list[VersionSpec], new: list[VersionSpec]) -> tuple[list[VersionSpec], Change]:
    """The versions that there are, as they are from now on."""
    found = {spec.name: spec for spec in new}
    merged, changed, later = [], [], []
    for spec in old:
        other = found.pop(spec.name, None)
        if other is None:
            later.append(f"{spec.name} is not in the repository any more")
            merged.append(spec)
            continue
        settings, change = of_model(spec.model, spec.settings, other.settings)
        merged.append(msgspec.structs.replace(spec, settings=settings))
        changed += change.changed
        later += change.needs_restart
        if spec.executor != other.executor:
            later.append(f"{spec.name} has files for another executor")
    later += [f"{name} is new in the repository" for name in found]
    return merged, Change(list(dict.fromkeys(changed)), list(dict.fromkeys(later)))


def still_keyed(old: Settings, new: Settings) -> list[tuple[str, str]]:
    """Whoever takes the last key away wants its owner out, not everybody in."""
    if not keyed(old) or keyed(new):
        return []
    text = "no tenant has a key any more, which would let everybody in: set server.require_keys = true, or restart"
    return [("tenants", text)]


def contradictions(settings: Settings, specs: list[VersionSpec]) -> list[tuple[str, str]]:
    """What is right in the file, and wrong as long as a part of it needs a restart."""
    models = {spec.model: spec.settings for spec in specs}
    found = [*cross_check_server(settings), *of_fallbacks(models)]
    return [(place, text + UNTIL_THEN) for place, text in found]

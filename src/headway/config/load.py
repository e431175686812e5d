"""The one way from a TOML file to settings."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.config.check import decode
from headway.config.cross import cross_check_models, cross_check_server, written_limits
from headway.config.errors import ConfigError, Problem
from headway.config.settings import ModelSettings, Settings

TOML_ERROR = re.compile(r"^(?P<what>.*?) \(at (?P<where>.*)\)$", re.DOTALL)


@dataclass(frozen=True)
class Config:
    """A configuration file that was read and found right.

    path: the file; None = no file, everything is default.
    written: what the file says, before defaults; `explain` and the registry need to know.
    command_line: settings that the command line replaced, by table.
    """

    path: Path | None = None
    settings: Settings = field(default_factory=Settings)
    written: Mapping[str, Any] = field(default_factory=dict)
    command_line: Mapping[str, Any] = field(default_factory=dict)

    @property
    def overrides(self) -> Mapping[str, Mapping[str, Any]]:
        """Model -> tables that replace those of its model.toml."""
        overrides: Mapping[str, Mapping[str, Any]] = self.written.get("models", {})
        return overrides

    @property
    def models_dir(self) -> Path:
        """The model repository; a relative path counts from the configuration file's folder."""
        return self.resolve(self.settings.server.models)

    def resolve(self, path: str) -> Path:
        """A path named in the file, absolute."""
        base = self.path.parent if self.path else Path()
        return (base / Path(path).expanduser()).resolve()


def load_config(path: Path | None) -> Config:
    """Reads and checks the server's configuration. Raises ConfigError with every problem."""
    if path is None:
        return Config()
    written = read_toml(path)
    settings, problems = decode(written, Settings, str(path))
    if settings is not None:
        found = [*cross_check_server(settings), *written_limits(settings, written)]
        for name, model in settings.models.items():
            found += [(f"models.{name}.{place}", text) for place, text in cross_check_models(model)]
        problems = [Problem(str(path), place, text) for place, text in found]
    if settings is None or problems:
        raise ConfigError(problems)
    return Config(path, settings, written)


def load_model_settings(path: Path, overrides: Mapping[str, Any]) -> tuple[ModelSettings | None, list[Problem]]:
    """models/NAME/model.toml (it may be missing) with the server's overrides laid over it, table by table.

    The overrides were checked with the server's file; what is wrong here is wrong in `path`.
    """
    try:
        written = read_toml(path) if path.exists() else {}
    except ConfigError as error:
        return None, list(error.problems)
    alone, problems = decode(written, ModelSettings, str(path))
    if alone is None:
        return None, problems
    merged, problems = decode({**written, **overrides}, ModelSettings, str(path))
    if merged is not None:
        problems = [Problem(str(path), place, text) for place, text in cross_check_models(merged)]
    return (None if problems else merged), problems


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables. Raises ConfigError where it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([Problem(str(path), "", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([Problem(str(path), "", f"expected UTF-8 text: {error.reason}")]) from error
    except tomllib.TOMLDecodeError as error:
        match = TOML_ERROR.match(str(error))
        place, what = (match["where"], match["what"]) if match else ("", str(error))
        raise ConfigError([Problem(str(path), place, f"not valid TOML: {what}")]) from error

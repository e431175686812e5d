"""Configuration errors: every problem with its place, all of them at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong.

    file: the file (or folder) it is in.  place: dotted path of the setting; "" = the file as a whole.
    text: what was found, what was expected.
    """

    file: str
    place: str
    text: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.place, self.text) if part)


class ConfigError(Exception):
    """The operator's fault: configuration or model repository. Nothing was started."""

    code = "config_error"
    http_status = 500
    retryable = False

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like this one, if any is like it."""
    found = difflib.get_close_matches(name.lower().replace("-", "_"), list(known), n=1, cutoff=0.6)
    return found[0] if found else None

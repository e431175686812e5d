"""What goes wrong in a worker, and whose fault it is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from headway.worker.executor import PartError
from headway.worker.memory import is_out_of_memory


class LoadError(Exception):
    """The version cannot be loaded, and the message says all that an operator needs to know."""


FINAL = (LoadError, SyntaxError, ImportError, FileNotFoundError, PermissionError)
"""What is wrong with what lies there: trying again does not mend it."""


def is_final(error: BaseException) -> bool:
    """Whether loading the same version again must fail the same way. Want of memory may pass, whoever reports it."""
    cause: BaseException | None = error
    while cause is not None:
        if is_out_of_memory(cause):
            return False
        cause = cause.__cause__
    return isinstance(error, FINAL)


class ResultError(Exception):
    """The model answered a batch in a way that does not fit it. The message names the model."""

    code = "model_error"


class InputError(Exception):
    """For model code: the request is at fault, not the model; its sender gets a 4xx with this text."""

    code = "invalid_input"


class ChannelClosed(Exception):
    """The runtime has gone, and with it the reason to live."""


def raised(name: str, error: BaseException) -> str:
    """What a model's exception is called to people. name: model/version."""
    model, _, version = name.rpartition("/")
    return f"model {model} version {version}: {in_words(error)}"


def in_words(error: BaseException) -> str:
    """What went wrong, in one line: a part's own error is words already."""
    return error.detail if isinstance(error, PartError) else f"{type(error).__name__}: {_last_line(str(error))}"


def _last_line(text: str) -> str:
    """What TorchScript and others raise brings a traceback along, with paths of this machine: that is for the log.
    What went wrong stands at its end."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else text


def part_error(name: str, error: BaseException) -> PartError:
    """An exception as the answer to the one request it belongs to."""
    if isinstance(error, PartError):
        return error
    if isinstance(error, InputError):
        return PartError(str(error), InputError.code)
    return PartError(raised(name, error))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that ends an error message, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""

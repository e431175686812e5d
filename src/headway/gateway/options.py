"""What a request says about itself beside its input: deadline, priority, tenant."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from headway.gateway.access import Caller
from headway.gateway.errors import BadRequest
from headway.gateway.exchange import Request

CLASSES: dict[int, int] = {1: 0, 2: 1}
"""The protocol's `priority` (1 = highest) -> class of the scheduler (0 = most urgent); >= 3 -> 2; 0 = the usual one."""
LOWEST_CLASS = 2
LONGEST_TARGET_MS = 86_400_000


class Options(msgspec.Struct, frozen=True):
    """timeout: nanoseconds that it has, None = as long as the server lets it."""

    timeout: int | None
    priority: int
    tenant: str


def read_options(request: Request, caller: Caller, parameters: dict[str, Any]) -> Options:
    """Headers and the body's `timeout` (µs) and `priority`. Of two timeouts the shorter counts; the body's
    priority goes before the header's. Raises BadRequest, and Forbidden for a class that the caller may not use."""
    headers = request.headers
    timeout = _timeout(headers.get(b"x-request-timeout-ms"), parameters.get("timeout"))
    priority = _priority(headers.get(b"x-priority"), parameters.get("priority"))
    if priority is None:
        priority = caller.usual_class
    elif caller.classes:
        caller.check_class(priority)
    return Options(caller.default_timeout if timeout is None else timeout, priority, caller.tenant)


def read_targets(request: Request, caller: Caller) -> tuple[int, int]:
    """What a language model's answer is to keep to, 0 = it need not: ns until its first token is worthless
    (`x-ttft-ms`), and ns between its tokens (`x-itl-ms`). Raises BadRequest."""
    headers, (first, between) = request.headers, caller.default_targets
    return (
        _target("x-ttft-ms", headers.get(b"x-ttft-ms"), first),
        _target("x-itl-ms", headers.get(b"x-itl-ms"), between),
    )


def _target(name: str, header: bytes | None, otherwise: int) -> int:
    if header is None:
        return otherwise
    try:
        milliseconds = float(header)
    except ValueError:
        milliseconds = math.nan
    if not 0 < milliseconds <= LONGEST_TARGET_MS:
        raise BadRequest(f"{name} must be a number above 0, at most {LONGEST_TARGET_MS}, got {_shown(header)}")
    return max(1, round(milliseconds * 1_000_000))


def _timeout(header: bytes | None, parameter: Any) -> int | None:
    if header is None and parameter is None:
        return None
    timeouts = []
    if header is not None:
        try:
            milliseconds = float(header)
        except ValueError:
            milliseconds = math.nan
        if not 0 < milliseconds < math.inf:
            raise BadRequest(f"x-request-timeout-ms must be a number above 0, got {_shown(header)}")
        timeouts.append(round(milliseconds * 1_000_000))
    if parameter is not None:
        if type(parameter) is not int or parameter < 0:
            raise BadRequest(f"parameter 'timeout' must be whole microseconds >= 0 (0 = none), got {parameter!r}")
        if parameter:
            timeouts.append(parameter * 1_000)
    return min(timeouts, default=None)


def _priority(header: bytes | None, parameter: Any) -> int | None:
    """The scheduler's class; None = the usual one."""
    if parameter is None:
        if header is None:
            return None
        if not header.isdigit() or len(header) > 9:
            raise BadRequest(f"x-priority must be an integer >= 0 (0 = default, 1 = highest), got {_shown(header)}")
        parameter = int(header)
    if type(parameter) is not int or parameter < 0:
        raise BadRequest(f"parameter 'priority' must be an integer >= 0 (0 = default, 1 = highest), got {parameter!r}")
    return CLASSES.get(parameter, LOWEST_CLASS) if parameter else None


def _shown(header: bytes) -> str:
    return repr(header[:40].decode("latin-1"))

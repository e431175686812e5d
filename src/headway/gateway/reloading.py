"""Reading the configuration again because somebody asked for it over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from headway.config.errors import ConfigError
from headway.gateway.errors import BadConfiguration, InternalError, error_response, oip_body
from headway.gateway.exchange import Pending, Request, Response

log = logging.getLogger("headway.gateway")
_encode = msgspec.json.Encoder().encode


def reload(do: Callable[[], Awaitable[dict[str, Any]]], request: Request) -> Pending:
    """do: raises ConfigError. It goes on though the client should leave."""
    pending = Pending()
    task = asyncio.ensure_future(_reply(do, request))
    task.add_done_callback(lambda done: None if done.cancelled() else pending.complete(done.result()))
    return pending


async def _reply(do: Callable[[], Awaitable[dict[str, Any]]], request: Request) -> Response:
    try:
        return Response(200, _encode(await do()))
    except ConfigError as error:
        refused = BadConfiguration(f"nothing has changed; {len(error.problems)} problem(s):\n{error}")
        problems = [{"file": p.file, "place": p.place, "text": p.text} for p in error.problems]
        response = error_response(refused, openai=False, request_id=request.id)
        response.body = _encode({**oip_body(refused, request.id), "problems": problems})
        return response
    except Exception:
        log.exception("request %s: reloading failed", request.id)
        broke = InternalError(f"internal error, logged under {request.id}")
        return error_response(broke, openai=False, request_id=request.id)

"""A request that its model refuses, for want of room, time or a worker, is given to the model that stands in for it.

Once: the fallback's own fallback is not asked. The request is prepared anew, as if the fallback had been asked; where
it does not fit, or is refused there too, what the model itself said stands. Until the model has answered, the body is
kept for that, and counted as one that is being read (`limits.max_queued_mb`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from headway.gateway.calls import Call
from headway.gateway.catalog import Catalog, Version
from headway.gateway.errors import HeadwayError, NotReady
from headway.gateway.exchange import Pending

Send: TypeAlias = Callable[[Version], None]
"""Prepares the request for a version and submits it. Raises HeadwayError where it does not fit."""


class Fallbacks:
    """served: (model asked, model that answered) -> replies."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.served: dict[tuple[str, str], int] = {}

    def submit(self, call: Call, version: Version, send: Send) -> Pending:
        """Raises HeadwayError."""
        if not version.settings.fallback:
            send(version)
            return call.pending
        call.again = partial(self._send, call, version, send)
        try:
            send(version)
        except NotReady as error:
            if not call.fall_back(error):
                raise
        except HeadwayError:
            call.again = None
            raise
        return call.pending

    def _send(self, call: Call, asked: Version, send: Send) -> None:
        other = self._catalog.version(asked.settings.fallback, None)
        pair = asked.model, other.model
        call.served_by = f"{other.model}/{other.number}".encode()
        call.on_served = partial(self._count, pair)
        send(other)

    def _count(self, pair: tuple[str, str]) -> None:
        self.served[pair] = self.served.get(pair, 0) + 1

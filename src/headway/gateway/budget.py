"""How many bytes of bodies the server holds that are not the runtime's yet: all connections together."""

from __future__ import annotations

from collections.abc import Callable


class BodyBudget:
    """bound: in bytes. held: reserved now; 0 when no request is being read or waits for its turn.
    admit: asked with the headers of a request before a body is read that is not known to be small. Raises HeadwayError.
    """

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.held = 0
        self.admit: Callable[[dict[bytes, bytes]], None] | None = None


class Reservation:
    """One body's share: grows before the bytes are kept, is given back once, however the request ends."""

    __slots__ = ("_budget", "_count")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._count = 0

    def grow(self, count: int) -> bool:
        """Whether there was room for `count` bytes more; if not, nothing has changed."""
        budget = self._budget
        if budget.held + count > budget.bound:
            return False
        budget.held += count
        self._count += count
        return True

    def release(self) -> None:
        """A second time does nothing."""
        self._budget.held -= self._count
        self._count = 0

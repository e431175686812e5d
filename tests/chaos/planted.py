"""`headway` with a bug in it, for a server that chaos must catch. `--bug NAME` has `tests.chaos.run` do so.

Each is one that would be easily overlooked: it shows at every fiftieth request, or at the third worker.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgspec

EVERY = 50
REMEMBERED = 40
"""A few requests before."""


def only_each(n: int) -> Callable[[], bool]:
    """True at every nth call."""
    numbers = count(1)
    return lambda: next(numbers) % n == 0


def on_replies(change: Callable[[Any], Iterator[Any]]) -> None:
    """What becomes of each reply on its way from the runtime to the gateway."""
    from headway.cli import server
    from headway.wire.messages import Reply

    deliver = server.Server._deliver

    def changed(self: Any, message: Any) -> None:
        for each in change(message) if isinstance(message, Reply) else (message,):
            deliver(self, each)

    server.Server._deliver = changed  # type: ignore[method-assign]


def a_reply_is_lost() -> None:
    lost = only_each(EVERY)
    on_replies(lambda reply: iter(() if lost() else (reply,)))


def an_answer_is_anothers() -> None:
    swap, answers = only_each(EVERY), []

    def change(reply: Any) -> Iterator[Any]:
        if reply.outputs:
            answers.append(reply.outputs)
        others = [outputs for outputs in answers[-REMEMBERED:] if _alike(outputs, reply.outputs)]
        yield msgspec.structs.replace(reply, outputs=others[0]) if others and swap() else reply

    on_replies(change)


def _alike(one: Any, other: Any) -> bool:
    return bool(other) and [tensor.header for part in one for tensor in part] == [
        tensor.header for part in other for tensor in part
    ]


def an_innocent_is_blamed() -> None:
    from headway.core.outcomes import Outcome

    blamed = only_each(EVERY)

    def change(reply: Any) -> Iterator[Any]:
        yield msgspec.structs.replace(reply, outcome=Outcome.MODEL_ERROR, outputs=[]) if blamed() else reply

    on_replies(change)


def a_reply_is_written_twice() -> None:
    from headway.gateway.connection import Connection

    twice, write = only_each(EVERY), Connection._write

    def changed(self: Any, request: Any) -> bool:
        again = twice()
        return write(self, request) and (not again or write(self, request))

    Connection._write = changed  # type: ignore[method-assign]


def a_worker_is_not_replaced() -> None:
    from headway.runtime.slot import Slot

    forgets, succeed = only_each(3), Slot._succeed
    Slot._succeed = lambda self, lost: None if forgets() else succeed(self, lost)  # type: ignore[method-assign]


def who_went_away_is_still_computed() -> None:
    from headway.cli import server
    from tests.canary.planted import CANARIES, plant

    canary = next(canary for canary in CANARIES if canary.name == "a cancelled part is still computed")
    server.Scheduler = plant(canary)  # type: ignore[attr-defined]


def a_process_stays_behind() -> None:
    subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def a_folder_stays_behind() -> None:
    from headway.runtime import supervisor

    supervisor.shutil.rmtree = lambda path, ignore_errors=False: None  # type: ignore[attr-defined]


def its_end_goes_wrong() -> None:
    from headway.cli import server

    async def close(self: Any) -> None:
        await self._runtime.close()
        raise RuntimeError("at the very end")

    server.Server.close = close  # type: ignore[method-assign]


def memory_and_files_are_kept() -> None:
    kept: list[Any] = []

    def change(reply: Any) -> Iterator[Any]:
        kept.append((bytearray(b"x" * (64 << 10)), open(os.devnull)))  # noqa: SIM115
        yield reply

    on_replies(change)


BUGS: dict[str, tuple[Callable[[], None], tuple[str, ...]]] = {
    bug.__name__: (bug, noticed)
    for bug, noticed in (
        (a_reply_is_lost, ("has no reply", "was decided and told to nobody")),
        (a_reply_is_written_twice, ("came the reply to",)),
        (an_answer_is_anothers, (", completed: expected [",)),
        (an_innocent_is_blamed, ("nobody should be told so", "clients were told {'model_error'")),
        (a_worker_is_not_replaced, ("not all workers are back", "are ready after the faults, expected 2 workers")),
        (a_process_stays_behind, ("left behind: process",)),
        (a_folder_stays_behind, ("left behind: /",)),
        (its_end_goes_wrong, ("ended with exit code 1", "in the log: Traceback")),
        (who_went_away_is_still_computed, ()),
        (memory_and_files_are_kept, ()),
    )
}
"""Name -> the bug, and what chaos must say of it; nothing where it shows in the waves only, or in a soak."""


def run() -> None:
    """As a program: BUG serve ..."""
    os.environ["HEADWAY_COMPILED"] = "0"  # compiled classes cannot be given other methods
    from headway.cli.main import main

    BUGS[sys.argv[1]][0]()
    sys.argv = ["headway", *sys.argv[2:]]
    main()

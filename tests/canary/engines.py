"""One-line bugs in what the core does with engines. Worlds of engines must notice them."""

from __future__ import annotations

from tests.canary.planted import Canary

ENGINES = (
    Canary(
        "a report that is told twice counts twice",
        "engines",
        "if worker is None or engine is None or event.number <= engine.report:",
        "if worker is None or engine is None:",
    ),
    Canary(
        "what an engine has not heard of is forgotten by its report",
        "engines",
        "if running.order > engine.heard:",
        "if running.order > engine.orders:",
    ),
    Canary(
        "an engine is handed what it has no room for",
        "engine",
        " and self.holds(tokens))",
        ")",
    ),
    Canary(
        "who is more urgent waits for room as all do",
        "engine",
        "return not ahead or (sum(ahead)",
        "return not self.waiting or (sum(ahead)",
    ),
    Canary(
        "what is charged in advance is charged for good",
        "engines",
        "        worker.pool.device.release(running.account, running.reserved)\n",
        "",
    ),
    Canary(
        "a prompt that was paid for is charged again",
        "dispatch",
        "queue.key, counter, request.paid)",
        "queue.key, counter, 0)",
    ),
    Canary(
        "what waits in an engine is taken back for room that others wait for",
        "engines",
        "if pool.waiting or pool.policy",
        "if pool.policy",
    ),
    Canary(
        "what could never be held waits for ever",
        "dispatch",
        "if engine is not None and (why_not := engine.never(tokens_of(head))):",
        "if engine is not None and (why_not := ''):",
    ),
    Canary(
        "whose turn comes by another's leaving is not looked at",
        "state",
        "if pool.device.cores or pool.policy.style is Style.SEQUENCE:",
        "if pool.device.cores:",
    ),
    Canary(
        "what comes back from an engine is dropped",
        "answers",
        "        waits_again(state, request.pool, part)\n",
        "",
    ),
)

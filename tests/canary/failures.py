"""Bugs of what is done about failures, planted as in `planted`."""

from __future__ import annotations

from tests.canary.planted import Canary

FAILURES = (
    Canary(
        "what a lost worker ran is forgotten",
        "answers",
        "        after_loss(state, pool, batch, loss, detail)\n",
        "",
    ),
    Canary(
        "who may have killed a worker runs in company again",
        "retry",
        "        _apart(state, pool, [[part] for part in parts], Remedy.ALONE, cause)\n",
        "        _again(state, pool, parts, cause)\n",
    ),
    Canary(
        "two suspects run at a time",
        "pool",
        "return None if queue.apart < 0 and self._tries_a_suspect() else Reason.RETRY",
        "return Reason.RETRY",
    ),
    Canary(
        "the next suspect is never tried",
        "answers",
        "    if batch.is_suspect:\n        state.reconsider(pool)\n",
        "",
    ),
    Canary(
        "a kill from outside is held against what ran",
        "retry",
        "    elif not loss.blames:\n        _again(state, pool, parts, cause)\n",
        "",
    ),
    Canary(
        "what was staged counts as having run",
        "retry",
        "    if batch.waits and pool.policy.idempotent:\n",
        "    if False:\n",
    ),
    Canary(
        "one death alone is enough",
        "retry",
        "if part.deaths < pool.policy.max_attempts:",
        "if part.deaths < 1:",
    ),
    Canary(
        "deaths alone are not counted",
        "requests",
        "part.deaths, part.spoiled = self.deaths, self.spoiled",
        "part.spoiled = self.spoiled",
    ),
    Canary(
        "a batch that raised is not halved",
        "retry",
        "        middle = (len(parts) + 1) // 2\n",
        "        middle = len(parts)\n",
    ),
    Canary(
        "the offender's batch is the model's fault",
        "retry",
        "elif batch.apart and parts and not company and outcome is Outcome.MODEL_ERROR:",
        "elif False:",
    ),
    Canary(
        "the circuit opens too early",
        "breaker",
        "self.deaths < DEATHS",
        "self.deaths < DEATHS - 1",
    ),
    Canary(
        "the circuit never closes",
        "answers",
        "    if pool.breaker.lives():\n",
        "    if False:\n",
    ),
    Canary(
        "who waits is not told that the circuit opens",
        "answers",
        "    state.refuse_waiting(pool, Outcome.CIRCUIT_OPEN, detail, lasts)\n",
        "",
    ),
    Canary(
        "many are let in to try a broken circuit",
        "admission",
        "return circuit is Circuit.HALF_OPEN and pool.breaker.trial not in state.requests",
        "return True",
    ),
    Canary(
        "a slow worker is given up at once",
        "watch",
        "            if worker.is_suspected:\n",
        "            if True:\n",
    ),
    Canary(
        "who hangs keeps his cores",
        "device",
        "return (worker for worker in busy if not worker.is_suspected)",
        "return busy",
    ),
    Canary(
        "nobody looks at the cores that who hangs leaves",
        "watch",
        "                state.touch(pool)  # what it keeps busy counts as free from now on\n",
        "",
    ),
    Canary(
        "what is staged stays with who hangs",
        "watch",
        '                take_back(state, worker, f"worker {worker.id} does not answer")\n',
        "",
    ),
    Canary(
        "what is taken back is forgotten",
        "retry",
        "        _back(state, pool, _open(state, batch.members), Remedy.AGAIN, cause, None)\n",
        "",
    ),
    Canary(
        "what is taken back counts as its worker's all the same",
        "retry",
        "        del worker.batches[batch.id]\n",
        "",
    ),
    Canary(
        "what must not run twice is staged",
        "placement",
        "worker.stage_at = may_stage if worker.pool.policy.idempotent else NEVER",
        "worker.stage_at = may_stage",
    ),
    Canary(
        "who has answered is not said to be well again",
        "answers",
        "    if batch is not None and worker.is_suspected:\n",
        "    if False:\n",
    ),
    Canary(
        "nothing is kept in quarantine",
        "fleet",
        "    pool.quarantine[event.content] = now + pool.policy.quarantine\n",
        "",
    ),
    Canary(
        "the quarantine is not asked",
        "admission",
        "if event.content and pool.quarantine.get(event.content, 0) > now:",
        "if False:",
    ),
    Canary(
        "the memory that was short is not remembered",
        "pool",
        "learned, operators = self.memory.tokens, self.rules.max_batch_tokens",
        "learned, operators = 0, self.rules.max_batch_tokens",
    ),
    Canary(
        "what was too large is not halved",
        "memory_cap",
        "self.tokens = max(1, min(self.tokens or tokens, tokens // 2))",
        "self.tokens = tokens",
    ),
)

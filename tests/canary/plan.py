"""Bugs of the planner of a language model's steps, planted as in `planted`."""

from __future__ import annotations

from tests.canary.planted import Canary


def bug(name: str, module: str, old: str, new: str) -> Canary:
    return Canary(name, module, old, new, "headway.llm.plan")


PLAN = (
    # blocks
    bug(
        "whoever is aborted keeps its blocks",
        "state",
        "            self.pool.give_back(blocks, self.cache.keeps)\n        return",
        "            pass\n        return",
    ),
    bug(
        "blocks are free while a plan that uses them runs",
        "state",
        "if self.plans and sequence.last_plan >= self.plans[0].number:",
        "if False:",
    ),
    bug(
        "blocks that waited for a plan never come back",
        "state",
        "            self.leaving -= len(blocks)\n            self.pool.give_back(blocks, self.cache.keeps)\n",
        "            self.leaving -= len(blocks)\n",
    ),
    bug("a share is not counted", "blocks", "        self.holders[block] += 1\n", "        self.holders[block] = 1\n"),
    bug(
        "the beginning of a chain goes before what continues it",
        "blocks",
        "for block in reversed(blocks):",
        "for block in blocks:",
    ),
    bug(
        "what another tenant has continued outlives its beginning",
        "prefix",
        "            lost += self._following.pop(each, ())\n",
        "            self._following.pop(each, None)\n",
    ),
    bug(
        "a stream goes on without a block",
        "growing",
        "        sequence.stalled = state.pool.available == 0\n",
        "        sequence.stalled = False\n        if state.pool.available == 0:\n            continue\n",
    ),
    # the prefix cache
    bug(
        "a block is shared before it is full",
        "planner",
        "            if end // size > before:\n                self._keep(sequence, before, end // size)\n",
        "            last = min(-(-end // size), len(sequence.hashes))\n"
        "            if last > before:\n                self._keep(sequence, before, last)\n",
    ),
    bug(
        "a hash is believed",
        "prefix",
        "if not same or held.tokens != tuple(tokens[start : start + self.block_size]):",
        "if not same:",
    ),
    bug(
        "what a block continues is not compared",
        "prefix",
        "same = held.before == before and held.root == root",
        "same = held.root == root",
    ),
    bug(
        "content stays in a block though another has it",
        "prefix",
        "            if block not in self._twins:\n                return True\n",
        "            return True\n",
    ),
    bug(
        "tenants share without a word",
        "state",
        "root(*self.names, adapter, whose, name)",
        "root(*self.names, adapter)",
    ),
    bug(
        "adapters share without a word",
        "state",
        "root(*self.names, adapter, whose, name)",
        "root(*self.names, whose, name)",
    ),
    bug(
        "a prompt that is found whole leaves nothing to compute",
        "state",
        "limit = (len(sequence.tokens) - 1) // self.block_size",
        "limit = len(sequence.tokens) // self.block_size",
    ),
    bug(
        "who wants every position anew reads the cache all the same",
        "state",
        "if not self.policy.prefix_cache or not sequence.reads_cache:",
        "if not self.policy.prefix_cache:",
    ),
    bug(
        "who waits for what another computes never wakes",
        "state",
        "            if self.computing.get(hash) == sequence.id:\n                del self.computing[hash]\n",
        "            pass\n",
    ),
    # order
    bug(
        "who has no room is skipped",
        "admitting",
        "        if answer is Room.PLACE and sequence.id not in state.resuming:\n            turns.passes(sequence)\n",
        "        if answer is not Room.YES and sequence.id not in state.resuming:\n"
        "            turns._without(sequence.account)\n",
    ),
    bug(
        "whoever is passed over is passed over for good",
        "turns",
        "if account.turn + self._cost(sequence) > self._ceiling:",
        "if False:",
    ),
    bug(
        "prompts under way do not count for turns",
        "tenants",
        "return self.base + self.unreported + self.reserved",
        "return self.base + self.unreported",
    ),
    bug(
        "classes are ignored within a tenant",
        "tenants",
        "heappush(self._queue, (sequence.priority, fresh, sequence.number, sequence))",
        "heappush(self._queue, (0, fresh, sequence.number, sequence))",
    ),
    bug(
        "new work goes before what resumes",
        "turns",
        "            if state.resuming:\n",
        "            if False:\n",
    ),
    # preemption
    bug(
        "one of the same class displaces",
        "admitting",
        "if other.priority > priority and",
        "if other.priority >= priority and",
    ),
    bug("nobody is immune", "victims", "s.preemptions < IMMUNE_AFTER", "True"),
    bug("the oldest may be taken", "victims", "s is not oldest and ", ""),
    bug(
        "with the worst case the newcomer does not count",
        "room",
        "+ self._blocks(mine) <= usable",
        "<= usable",
    ),
    bug(
        "who resumes has forgotten what was its prompt",
        "state",
        "        sequence.stalled = False\n        sequence.account.adds_ahead",
        "        sequence.num_prompt = len(sequence.tokens)\n        sequence.account.adds_ahead",
    ),
    bug(
        "the lone one at the wall waits for a miracle",
        "growing",
        "        state.end(order[0], End.LENGTH)\n",
        "        pass\n",
    ),
    bug(
        "who does not fit any more waits for ever",
        "state",
        "            self.end(sequence, End.TOO_LONG)  # the pool has shrunk while it ran\n",
        "            pass\n",
    ),
    # charges
    bug(
        "what is computed again is charged to its tenant",
        "state",
        "        sequence.stalled = False\n        sequence.account.adds_ahead",
        "        sequence.paid = 0\n        sequence.account.adds_ahead",
    ),
    bug(
        "each choice pays for the prompt",
        "planner",
        "if request.output or (choice > first_choice and state.policy.prefix_cache):",
        "if request.output:",
    ),
    bug(
        "what is found in the cache is paid for",
        "state",
        "sequence.paid = max(sequence.paid, min(sequence.computed, sequence.num_prompt))",
        "sequence.paid = sequence.paid",
    ),
    # steps
    bug(
        "a chunk takes longer than there is",
        "chunks",
        "count = min(rest, tokens, self.steps.fits(time, sequence.computed + so_far))",
        "count = min(rest, tokens)",
    ),
    bug(
        "a chunk has more tokens than the step",
        "chunks",
        "count = min(rest, tokens, self.steps.fits(time, sequence.computed + so_far))",
        "count = min(rest, self.steps.fits(time, sequence.computed + so_far))",
    ),
    bug(
        "chunks are of any size", "chunks", "            count -= (so_far + count) % self._tile\n", "            pass\n"
    ),
    bug("nobody must get on", "chunks", "        if must and not dealt:\n", "        if False:\n"),
    bug(
        "a prompt that is only scored brings a token",
        "planner",
        "samples = last and sequence.max_tokens > 0",
        "samples = last",
    ),
    bug(
        "a step beyond the last token is planned",
        "planner",
        "                continue  # the sample that is under way is its last\n",
        "                pass\n",
    ),
    bug(
        "only one choice is aborted",
        "planner",
        "        for id in ending:\n",
        "        for id in ending[:1]:\n",
    ),
    bug(
        "a token is told twice",
        "planner",
        "return Emitted(sequence.id, produced - 1, token, end)",
        "return Emitted(sequence.id, max(0, produced - 2), token, end)",
    ),
)

ATTEMPT = bug(
    "results of an earlier attempt are believed",
    "planner",
    "return sequence if sequence is not None and sequence.attempt == row.attempt else None",
    "return sequence",
)
"""Seen only where one comes back while a row that it has lost is still under way."""

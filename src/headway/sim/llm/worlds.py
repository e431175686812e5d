"""Seeded random worlds for the planner of a language model's steps: random calls, each of them judged; then nothing
more comes, and all that is there must finish.

    python -m headway.sim.llm.worlds --seed 1 --seeds 100 --steps 1000
    python -m headway.sim.llm.worlds --seed 17                # replay one

A world is a function of its seed and the number of its steps alone. There are two engines in it: what one gives up the
other goes on with.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from random import Random

from headway.core.units import NEVER, SECOND, Instant, ms
from headway.llm.plan.planner import Planner
from headway.llm.plan.policy import NO_DEADLINES, UNIT, Admit, Deadlines, PlanPolicy
from headway.llm.plan.prefix import Hash, chained
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.step_time import DEFAULT, Coefficients
from headway.sim import many_worlds
from headway.sim.llm.judge import Judge

STOP = 7
VOCABULARY = 60
QUICK = Coefficients(step=ms(0.2), prefill=2_000.0, decode=10_000.0, context=5.0, pairs=5.0)
MOST_WAITING = 40
DEEP_EVERY = 8


def weak(before: bytes, tokens: tuple[int, ...]) -> bytes:
    """Few hashes for many blocks."""
    return bytes([sum(tokens) % 3])


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """What a world is like. depth: plans in flight at most.  arrive, abort, take_back, resize, report: how likely in
    a step.  longest: of prompts and of outputs."""

    policy: PlanPolicy
    blocks: int
    block_size: int
    hash: Hash
    tenants: tuple[str, ...]
    weights: dict[str, float]
    deadlines: dict[str, Deadlines]
    salted: bool
    classes: int
    depth: int
    device: Coefficients
    arrive: float
    abort: float
    take_back: float
    resize: float
    report: float
    longest: tuple[int, int]


def plan_world(random: Random) -> WorldPlan:
    pick = random.choice
    max_sequences = pick((1, 2, 4, 8, 16, 16))
    tile = pick((1, 4, 8, 16))
    block_size = pick((1, 2, 4, 4, 8, 16))
    longest = pick(((20, 20), (10, 100), (80, 150), (200, 40), (30, 200)))
    policy = PlanPolicy(
        max_sequences=max_sequences,
        max_step_tokens=max_sequences + tile + pick((0, 10, 50, 200)),
        max_context=pick((longest[0] + longest[1], 2_000)),
        tile=tile,
        max_partial_prefills=pick((1, 2, 4)),
        oldest_part=pick((1, 2, 4)),
        target_itl=pick((ms(1), ms(5), ms(50), SECOND)),
        least_itl=pick((0, ms(1))),
        admit=pick([*Admit, Admit.UNLIMITED]),
        prefix_cache=random.random() < 0.85,
        defer=random.random() < 0.8,
    )
    tenants = ("a", "b", "c", "d")[: pick((1, 2, 3, 4))]
    return WorldPlan(
        policy=policy,
        blocks=-(-pick((40, 100, 250, 800)) // block_size),
        block_size=block_size,
        hash=weak if random.random() < 0.15 else chained,
        tenants=tenants,
        weights={tenant: pick((0.5, 1.0, 1.0, 3.0)) for tenant in tenants},
        deadlines={
            tenant: Deadlines(pick((0, 0, 0, SECOND)), pick((0, 0, 0, ms(20))))
            if random.random() < 0.5
            else NO_DEADLINES
            for tenant in tenants
        },
        salted=random.random() < 0.3,
        classes=pick((1, 1, 2, 3)),
        depth=pick((1, 2, 2)),
        device=pick((DEFAULT, QUICK)),
        arrive=pick((0.1, 0.3, 0.6)),
        abort=pick((0.0, 0.02, 0.1)),
        take_back=pick((0.0, 0.0, 0.05)),
        resize=pick((0.0, 0.0, 0.03)),
        report=pick((0.0, 0.2)),
        longest=longest,
    )


class World:
    """engines: two judged planners of the same kind.  journal: of each sequence, the tokens that came of it, wherever.
    counts: of what has happened.  digest: of all that was planned."""

    def __init__(self, seed: int, planner: type[Planner] = Planner) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.plan = plan_world(self.random)
        w = self.plan
        self.engines = [
            Judge(
                planner(
                    w.policy,
                    w.blocks,
                    w.block_size,
                    ("v1",),
                    w.weights.__getitem__,
                    w.device,
                    w.hash,
                    w.deadlines.__getitem__,
                ),
                DEEP_EVERY,
            )
            for _ in range(2)
        ]
        self.now: Instant = ms(1)
        self.journal: dict[SequenceId, list[int]] = {}
        self.requests = 0
        self.counts: Counter[str] = Counter()
        self.digest = sha256()

    # -- what happens ------------------------------------------------------------------------

    def step(self) -> None:
        w, chance = self.plan, self.random.random
        for engine in self.engines:
            if chance() < w.arrive and len(engine.told) < MOST_WAITING:
                self.arrives(engine)
            if chance() < w.abort and engine.told:
                id = self.random.choice(list(engine.told))
                engine.abort(id.request, id.choice if chance() < 0.3 else None)
                self.counts["aborted"] += 1
            if chance() < w.take_back and engine.told:
                self.moves(engine, self.engines[engine is self.engines[0]])
            if chance() < w.resize:
                engine.resize(self.random.randrange(1, 2 * w.blocks))
                self.counts["resized"] += 1
            if chance() < w.report:
                self.reports(engine)
            self.goes_on(engine)

    def arrives(self, engine: Judge) -> None:
        random, w = self.random, self.plan
        self.requests += 1
        prompt, output = w.longest
        beginning = [random.randrange(3)] * random.choice((0, 0, random.randrange(prompt)))
        read_cache = random.random() < 0.9
        request = SequenceRequest(
            self.requests,
            random.choice(w.tenants),
            beginning + [random.randrange(VOCABULARY) for _ in range(random.randrange(1, 1 + prompt - len(beginning)))],
            random.choice((1 if read_cache else 0, random.randrange(1, 1 + output))),
            priority=random.randrange(w.classes),
            first_by=random.choice((NEVER, NEVER, NEVER, self.now + random.randrange(2 * SECOND))),
            itl=random.choice((0, 0, ms(10), ms(100))),
            stops=random.choice(((), (STOP,))),
            choices=random.choice((1, 1, 1, 3)),
            salt="all" if w.salted else "",
            read_cache=read_cache,
            adapter=random.choice(("", "", "", "adapter")),
        )
        refused = engine.add(request, self.now)
        self.counts["arrived" if refused is None else "refused"] += 1

    def moves(self, engine: Judge, other: Judge) -> None:
        id = self.random.choice(list(engine.told))
        moved = engine.take_back(id)
        if moved is not None:
            assert list(moved.output) == self.journal.get(id, []), "it has produced what came of it"
            to = self.random.choice((engine, other))
            self.counts["moved"] += to.add(moved, self.now, id.choice) is None

    def reports(self, engine: Judge) -> None:
        """A server that knows of one engine only: its values are what was served."""
        tenants = engine.planner.state.tenants
        self.counts["reports"] += 1
        reported = tenants.report(self.counts["reports"])
        counters = [(served.tenant, tenants.accounts[served.tenant].counter // UNIT) for served in reported]
        tenants.learn(counters, self.counts["reports"])

    def goes_on(self, engine: Judge) -> None:
        random, w = self.random, self.plan
        if len(engine.flying) < w.depth and not (engine.flying and random.random() < 0.3):
            engine.plan(self.now)
        if engine.flying and (len(engine.flying) == w.depth or random.random() < 0.7):
            self.runs(engine)
        else:
            self.now += ms(0.1)

    def runs(self, engine: Judge) -> None:
        plan = engine.flying[0].plan
        elapsed = int(
            w_time(self.plan.device, plan.prefill, plan.decodes, plan.context) * self.random.uniform(0.9, 1.2)
        )
        self.now += elapsed
        sampled = [self.random.randrange(VOCABULARY) if row.samples else None for row in plan.rows]
        for each in engine.commit(sampled, self.now, elapsed):
            told = self.journal.setdefault(each.id, [])
            assert each.position == len(told), f"{each} after {len(told)} tokens"
            told.append(each.token)
        self.digest.update(repr([(row.id, row.start, row.size, list(row.block_table)) for row in plan.rows]).encode())

    # -- the end -----------------------------------------------------------------------------

    def drain(self) -> None:
        """Nothing more comes; whatever fits finishes, in no more steps than there is work to be done again."""
        for engine in self.engines:
            work = sum(len(told.tokens) + told.request.max_tokens for told in engine.told.values())
            for _ in range(100 + 4 * work):
                if not engine.told and not engine.flying:
                    break
                if len(engine.flying) < self.plan.depth:
                    engine.plan(self.now)
                if engine.flying:
                    self.runs(engine)
            else:
                raise AssertionError(f"these never finish: {list(engine.told.values())[:5]}")
            engine.plan(self.now)
            engine.is_idle()
            state = engine.planner.state
            self.counts["preempted"] += sum(state.counts.preemptions.values())
            for why, count in state.counts.preemptions.items():
                self.counts[f"preempted for {why}"] += count
            self.counts["deferred"] += state.counts.deferred
            self.counts["hits"] += state.cache.hits
            self.counts["collisions"] += state.cache.collisions
            self.counts["evicted"] += sum(state.pool.evicted.values())
            self.counts["void"] += state.counts.void
            self.counts["steps"] += state.counts.steps
            self.counts["calls"] += engine.calls


def w_time(device: Coefficients, prefill: int, decodes: int, context: int) -> float:
    return device.predict(prefill, decodes, context, 0)


class WorldFailed(AssertionError):
    """A promise was broken, or the planner raised. Says how to see it again."""


def run_world(seed: int, steps: int = 1_000, planner: type[Planner] = Planner) -> Counter[str]:
    """What happened in it. WorldFailed."""
    return _run(World(seed, planner), steps).counts


def _run(world: World, steps: int) -> World:
    at = 0
    try:
        while at < steps:
            world.step()
            at += 1
        world.drain()
    except Exception as error:
        raise WorldFailed(
            f"seed {world.seed}, step {at}: {type(error).__name__}: {error}\n"
            f"replay: python -m headway.sim.llm.worlds --seed {world.seed} --steps {steps}\n{world.plan}"
        ) from error
    return world


def main(arguments: list[str] | None = None) -> int:
    parser = many_worlds.options("headway.sim.llm.worlds", __doc__)
    parser.add_argument("--steps", type=int, default=1_000, help="steps of each world before nothing more comes")
    chosen = parser.parse_args(arguments)

    def run(seed: int) -> many_worlds.Played:
        world = _run(World(seed), chosen.steps)
        return many_worlds.Played(world.counts, world.digest.hexdigest())

    return many_worlds.play(chosen, run, WorldFailed)


if __name__ == "__main__":
    sys.exit(main())

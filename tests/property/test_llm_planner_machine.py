"""Hypothesis drives two planners; the judge of the worlds looks at every call, with books of its own.

The machine decides what comes, what is given up, what fails, when a plan is made and when its results come. At the end
nothing more comes, and all that is there must finish in a bounded number of steps.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headway.core.units import NEVER, Duration, Instant, ms
from headway.llm.plan.planner import MOST_PLANS, Planner
from headway.llm.plan.policy import UNIT, Admit, PlanPolicy
from headway.llm.plan.prefix import chained
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.step_time import DEFAULT
from headway.sim.llm.judge import Judge
from headway.sim.llm.worlds import QUICK, weak

STOP = 7
MOST = 25
"""Sequences of an engine."""

engines = st.integers(0, 1)
picks = st.integers(0, 1000)
"""Picks one of whatever there is at the time, modulo its number."""
tokens = st.sampled_from([1, 2, 3, STOP])


class PlannerMachine(RuleBasedStateMachine):
    """journal: of each sequence, the tokens that came of it, wherever.  sampled: tokens that are to be sampled next."""

    @initialize(
        blocks=st.integers(4, 60),
        block_size=st.sampled_from([1, 2, 4]),
        sequences=st.sampled_from([1, 2, 3, 8]),
        tile=st.sampled_from([1, 4, 8]),
        spare=st.sampled_from([0, 6, 40]),
        context=st.sampled_from([40, 200]),
        admit=st.sampled_from(list(Admit)),
        cached=st.booleans(),
        defer=st.booleans(),
        hash=st.sampled_from([chained, weak]),
        weight=st.sampled_from([0.5, 1.0, 3.0]),
        device=st.sampled_from([DEFAULT, QUICK]),
        itl=st.sampled_from([ms(5), ms(500)]),
        partial=st.sampled_from([1, 4]),
    )
    def begin(
        self,
        blocks,
        block_size,
        sequences,
        tile,
        spare,
        context,
        admit,
        cached,
        defer,
        hash,
        weight,
        device,
        itl,
        partial,
    ) -> None:
        policy = PlanPolicy(
            max_sequences=sequences,
            max_step_tokens=sequences + tile + spare,
            max_context=context,
            tile=tile,
            max_partial_prefills=partial,
            target_itl=itl,
            least_itl=ms(5),
            admit=admit,
            prefix_cache=cached,
            defer=defer,
        )

        def weights(tenant: str) -> float:
            return weight if tenant == "a" else 1.0

        self.judges = [Judge(Planner(policy, blocks, block_size, ("v",), weights, device, hash)) for _ in range(2)]
        self.now: Instant = 0
        self.requests = 0
        self.journal: dict[SequenceId, list[int]] = {}
        self.reported = 0
        self.sampled: list[int] = []

    # -- what comes and goes -----------------------------------------------------------------

    @rule(
        at=engines,
        tenant=st.sampled_from("abc"),
        beginning=st.tuples(st.sampled_from([1, 2]), st.integers(0, 16)),
        rest=st.lists(st.integers(1, 3), min_size=1, max_size=12),
        max_tokens=st.integers(1, 14),
        priority=st.integers(0, 2),
        within=st.sampled_from([0, 0, ms(8), ms(100)]),
        itl=st.sampled_from([0, ms(20)]),
        stops=st.sampled_from([(), (STOP,)]),
        choices=st.sampled_from([1, 1, 2, 3]),
        salt=st.sampled_from(["", "all"]),
        read_cache=st.sampled_from([True, True, False]),
        adapter=st.sampled_from(["", "", "adapter"]),
    )
    def arrives(
        self, at, tenant, beginning, rest, max_tokens, priority, within, itl, stops, choices, salt, read_cache, adapter
    ) -> None:
        if len(self.judges[at].told) > MOST:
            return
        self.requests += 1
        token, length = beginning
        self.judges[at].add(
            SequenceRequest(
                self.requests,
                tenant,
                [token] * length + rest,
                max_tokens - (max_tokens == 1 and not read_cache),
                priority,
                self.now + within if within else NEVER,
                itl,
                stops,
                choices,
                salt,
                read_cache,
                adapter=adapter,
            ),
            self.now,
        )

    @precondition(lambda self: any(judge.told for judge in self.judges))
    @rule(pick=picks, one=st.booleans())
    def is_aborted(self, pick: int, one: bool) -> None:
        judge, id = self.one(pick)
        judge.abort(id.request, id.choice if one else None)

    @rule(request=st.integers(0, 3), at=engines)
    def somebody_unknown_is_aborted(self, request: int, at: int) -> None:
        self.judges[at].abort(10_000 + request)

    @precondition(lambda self: any(judge.told for judge in self.judges))
    @rule(pick=picks, to=engines)
    def is_taken_back_and_given_to_another(self, pick: int, to: int) -> None:
        judge, id = self.one(pick)
        moved = judge.take_back(id)
        if moved is not None:
            assert list(moved.output) == self.journal.get(id, [])
            self.judges[to].add(moved, self.now, id.choice)

    @rule(at=engines, blocks=st.integers(1, 80))
    def is_resized(self, at: int, blocks: int) -> None:
        self.judges[at].resize(blocks)

    @rule(at=engines)
    def reports(self, at: int) -> None:
        tenants = self.judges[at].planner.state.tenants
        self.reported += 1
        known = [each.tenant for each in tenants.report(self.reported)]
        tenants.learn([(tenant, tenants.accounts[tenant].counter // UNIT) for tenant in known], self.reported)

    def one(self, pick: int) -> tuple[Judge, SequenceId]:
        there = [(judge, id) for judge in self.judges for id in judge.told]
        return there[pick % len(there)]

    # -- steps -------------------------------------------------------------------------------

    @rule(at=engines, later=st.sampled_from([0, ms(1), ms(30)]))
    def plans(self, at: int, later: Duration) -> None:
        self.now += later
        if len(self.judges[at].flying) < MOST_PLANS:
            self.judges[at].plan(self.now)

    @rule(at=engines, sampled=st.lists(tokens, max_size=8), elapsed=st.sampled_from([0, ms(1), ms(40)]))
    def runs(self, at: int, sampled: list[int], elapsed: Duration) -> None:
        if self.judges[at].flying:
            self.commit(self.judges[at], sampled, elapsed)

    @rule(at=engines, pick=picks, sampled=st.lists(tokens, max_size=8))
    def runs_and_a_row_of_it_fails(self, at: int, pick: int, sampled: list[int]) -> None:
        """Whose row has failed is given up before the results are told."""
        judge = self.judges[at]
        if judge.flying:
            rows = judge.flying[0].plan.rows
            judge.abort(rows[pick % len(rows)].id.request)
            self.commit(judge, sampled, ms(1))

    @rule(at=engines, count=st.integers(2, 12), ahead=st.booleans(), token=tokens)
    def goes_on_for_some_steps(self, at: int, count: int, ahead: bool, token: int) -> None:
        judge = self.judges[at]
        for _ in range(count):
            self.step(judge, 2 if ahead else 1, token)

    def step(self, judge: Judge, most: int, token: int = 1) -> None:
        while len(judge.flying) < most and judge.plan(self.now).rows:
            pass
        if judge.flying:
            self.commit(judge, [token], ms(2))

    def commit(self, judge: Judge, sampled: list[int], elapsed: Duration) -> None:
        self.now += elapsed
        rows = judge.flying[0].plan.rows
        given = [*sampled, *[1] * len(rows)]
        living = [judge.told.get(row.id) is not None for row in rows]
        results = [
            given[place] if row.samples and lives else None
            for place, (row, lives) in enumerate(zip(rows, living, strict=True))
        ]
        for each in judge.commit(results, self.now, elapsed):
            told = self.journal.setdefault(each.id, [])
            assert each.position == len(told)
            told.append(each.token)

    def teardown(self) -> None:
        for judge in getattr(self, "judges", []):
            work = sum(len(told.tokens) + told.request.max_tokens for told in judge.told.values())
            for _ in range(20 + 4 * work):
                if not judge.told and not judge.flying:
                    break
                self.step(judge, 1)
            assert not judge.told, f"these never finish: {list(judge.told.values())}"
            judge.plan(self.now)
            judge.is_idle()


TestPlanner = PlannerMachine.TestCase
TestPlanner.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

"""Tenants in the metrics and in `explain`: what the core says of them, by their names, and of the rest as `other`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headway.cli.explain_tenants import forecast, tenants
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.tenancy import RateLimit, TenantPolicy
from headway.core.tenant_views import rooms, shares
from headway.core.units import SECOND, ms, seconds
from headway.core.views import detail
from headway.telemetry.counters import Counters
from headway.telemetry.metrics import Metrics
from headway.telemetry.tenants import forecast as forecast_told
from headway.telemetry.tenants import tenants as tenants_told
from tests.unit.core_world import V, World, arrive
from tests.unit.test_core_tenant_views import backlogged, lent, neglected, policy, serve
from tests.unit.test_telemetry_counters import page, value

MILLISECONDS_OFF = 0.02


def metrics(world: World) -> Metrics:
    core = world.scheduler
    return Metrics(
        Counters(), shares=lambda: shares(core), rooms=lambda: rooms(core), clock=lambda: world.now, views=core.views
    )


def explained(world: World) -> list[dict[str, Any]]:
    found = detail(world.scheduler, V, world.now)
    assert found is not None
    told = tenants_told(found.tenants, found.policy, "m", world.now)
    assert json.loads(json.dumps(told)) == told, "plain JSON values"
    return told


def of(world: World, tenant: str) -> dict[str, Any]:
    (found,) = [one for one in explained(world) if one["tenant"] == tenant]
    return found


def lines(world: World) -> Iterator[str]:
    return (line.strip() for line in tenants(explained(world)))


def test_service_and_what_was_owed_are_told_in_seconds_by_device_and_tenant() -> None:
    world, running = backlogged("heavy", "light", "stranger")
    serve(world, running, 90)
    shown = metrics(world)
    for tenant, expected in (("heavy", 0.54), ("light", 0.18), ("other", 0.18)):
        labels = {"device": "m/1", "tenant": tenant}
        received = value(shown, "headway_tenant_service_seconds_total", **labels)
        owed = value(shown, "headway_tenant_owed_seconds_total", **labels)
        assert received == pytest.approx(expected, abs=MILLISECONDS_OFF)
        assert owed == pytest.approx(expected, abs=MILLISECONDS_OFF)


def test_a_configured_tenant_that_never_came_has_its_lines_at_0() -> None:
    shown = metrics(World(server=policy()))
    assert value(shown, "headway_tenant_service_seconds_total", device="m/1", tenant="heavy") == 0
    assert value(shown, "headway_tenant_waiting_requests", model="m", version="1", tenant="light") == 0


def test_what_waits_what_is_borrowed_and_what_was_reclaimed_are_told_by_version_and_tenant() -> None:
    def rows(world: World, *names: str) -> list[float]:
        shown = metrics(world)
        return [
            value(shown, f"headway_tenant_{kind}", model="m", version="1", tenant=name)
            for name in names
            for kind in ("waiting_requests", "borrowed_requests", "reclaimed_requests_total", "regained_requests_total")
        ]

    world = lent(policy(greedy=TenantPolicy()), also="light")
    assert rows(world, "greedy", "light") == [3, 1, 0, 0, 1, 0, 0, 0]
    world.tell(arrive(9, tenant="light"))
    assert rows(world, "greedy", "light") == [2, 0, 1, 0, 2, 0, 0, 1]
    assert rows(lent(policy(), also="light"), "other") == [3, 1, 0, 0]


@pytest.mark.parametrize(("tenant", "label"), [("light", "light"), ("stranger", "other")])
def test_who_starves_is_told_and_for_how_long(tenant: str, label: str) -> None:
    shown = metrics(neglected(tenant))
    labels = {"device": "m/1", "tenant": label}
    assert value(shown, "headway_starving_tenants", **labels) == 1
    assert value(shown, "headway_tenant_starving_seconds", **labels) == pytest.approx(2, abs=0.2)
    assert value(shown, "headway_tenant_starvations_total", **labels) == 1
    assert value(shown, "headway_starving_tenants", device="m/1", tenant="heavy") == 0
    assert value(shown, "headway_tenant_starving_seconds", device="m/1", tenant="heavy") == 0


def test_strangers_add_no_lines() -> None:
    world = World(server=policy())
    before = set(page(metrics(world)))
    world.tell(*(arrive(number, tenant=f"stranger-{number}") for number in range(300)))
    assert set(page(metrics(world))) == before


def test_explain_tells_each_tenant_its_weight_and_share_of_the_last_while() -> None:
    world, running = backlogged("heavy", "light", "stranger")
    serve(world, running, 90)
    assert [one["tenant"] for one in explained(world)] == ["heavy", "light", "other"]
    heavy = of(world, "heavy")
    assert (heavy["weight"], of(world, "other")["weight"]) == (3, 1)
    assert heavy["last"]["received_s"] == pytest.approx(0.54, abs=MILLISECONDS_OFF)
    assert heavy["last"]["owed_s"] == pytest.approx(0.54, abs=MILLISECONDS_OFF)
    assert heavy["last"]["span_s"] == pytest.approx(0.9, abs=MILLISECONDS_OFF)
    assert heavy["waiting_requests"] == pytest.approx(100 - 54, abs=2)
    assert heavy["lead_s"] is not None and 0 <= heavy["lead_s"] <= 0.02
    assert (heavy["neglect"], heavy["foreseen_ms"]) == (None, None)


def test_explain_tells_a_tenants_slo_for_the_model() -> None:
    server = policy(hasty=TenantPolicy(slos=(("m", ms(50)),)))
    world = World(BatchPolicy(slo=ms(50)), server=server)
    assert of(world, "hasty")["slo_ms"] == 50
    assert of(World(server=policy()), "light")["slo_ms"] == 0


def test_the_page_shows_who_is_busy_first_and_names_who_is_not() -> None:
    world, running = backlogged("heavy", "light")
    serve(world, running, 40)
    shown = list(lines(world))
    assert shown[0] == "of the device, seconds x cores, over the last 0 s:"
    assert shown[1].split()[:4] == ["weight", "received", "owed", "waiting"]
    assert [line.split()[0] for line in shown[2:4]] == ["light", "heavy"]
    assert shown[2].split()[1] == "1"
    assert shown[-1] == "nothing of late: other"


def test_the_page_tells_limits_and_how_far_they_are_used() -> None:
    limits = RateLimit(requests_per_second=10, burst=2), RateLimit(concurrent=3, beyond=64, up_to=256)
    bound = TenantPolicy(limits=limits, max_queued_requests=7)
    world = World(BatchPolicy(max_batch_size=1), server=policy(bound=bound))
    world.tell(*(arrive(number, tenant="bound", length=100) for number in range(2)))
    shown = list(lines(world))
    assert "bound may have 7 requests waiting, has 1" in shown
    assert "bound may have: 10 requests per second, 18 left now" in shown
    assert "bound may have of length longer than 64 and up to 256: 3 open requests, has 2" in shown


def test_the_page_tells_who_starves_and_who_is_ahead() -> None:
    world = neglected()
    fair = world.scheduler._state.pools[V].fair
    fair.accounts["heavy"].counter = fair.accounts["light"].counter + SECOND
    fair.starving["light"] = fair.starving["light"]._replace(ahead="heavy")
    (line,) = [line for line in lines(world) if "starves" in line]
    assert line.startswith("light starves, for 2 s now: it got 0 s of the ")
    assert line.endswith("heavy is furthest ahead of it, and borrows no room meanwhile")
    (line,) = [line for line in lines(neglected("stranger")) if "starves" in line]
    assert line.startswith("1 of those without a name starves")


def test_the_page_tells_that_what_a_tenant_waits_for_has_no_worker() -> None:
    told = explained(neglected())
    (light,) = [one for one in told if one["tenant"] == "light"]
    light["neglect"]["has_worker"] = False
    assert any(line.endswith("nothing that it waits for has a worker") for line in tenants(told))


def test_the_page_tells_when_the_next_would_be_answered() -> None:
    world = World(BatchPolicy(max_batch_size=1), server=ServerPolicy(tenants=(("light", TenantPolicy()),)))
    world.tell(*(arrive(number, tenant="light") for number in range(100)))
    (light,) = [line for line in lines(world) if line.startswith("light")]
    assert light.endswith(" ms") and 900 < float(light.split()[-2]) < 1100


def test_the_page_tells_what_forecasts_were_worth() -> None:
    world = World()

    def shown() -> list[str]:
        found = detail(world.scheduler, V, 0)
        assert found is not None
        return list(forecast(forecast_told(found.forecast)))

    assert shown() == ["no answer was compared with what was foreseen of it yet: nobody had to wait long"]
    outlook = world.scheduler._state.pools[V].outlook
    for _ in range(5):
        outlook.learn(seconds(1), seconds(1))
    first, second = shown()
    assert first.startswith(
        "5 answers were compared: they take 1.00 of what is foreseen as a rule, and hardly ever 0.000 s more"
    )
    assert second == "that is too few to go by: so far only who would be late if it took half as long is refused"
    for _ in range(40):
        outlook.learn(seconds(1), seconds(2))
    (line,) = shown()
    assert line.startswith("45 answers were compared: they take 1.")
    assert list(forecast(None)) == []

"""From settings to policies, and from slots to what the gateway is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headway.config.settings import Batching, Limits, ModelSettings, Scheduling, Settings
from headway.config.tenants import LimitSettings, OtherTenants, TenantSettings
from headway.core.ids import VersionId
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.tenancy import RateLimit, TenantPolicy
from headway.core.units import NEVER, ms, seconds
from headway.registry.placement import Place
from headway.registry.spec import VersionSpec
from headway.runtime.crew import LiveCrew
from headway.runtime.observer import NullObserver
from headway.runtime.policies import batch_policy, server_policy, tightest_slo_ms
from headway.runtime.status import version_status
from headway.runtime.worker_process import LEGAL, State
from headway.wire.messages import ModelMeta

V = VersionId("m", 1)
PLACE = Place(threads=5, device="cpu", cores=3)
META = ModelMeta("python", (), ())


def test_server_settings_become_the_servers_policy_in_bytes_and_nanoseconds():
    settings = Settings(
        limits=Limits(max_queued_mb=2),
        scheduling=Scheduling(patience_ms=(1, 2.5)),
        tenants={"a": TenantSettings(weight=3)},
    )
    assert server_policy(settings, {"cpu": 4, "cuda:0": 1}) == ServerPolicy(
        max_queued_bytes=2 << 20,
        patience=(ms(1), ms(2.5)),
        tenants=(("a", TenantPolicy(weight=3)), ("default", TenantPolicy())),
        devices=(("cpu", 4), ("cuda:0", 1)),
    )


def test_a_tenants_settings_become_its_policy():
    tenant = TenantSettings(
        weight=2,
        limits=(
            LimitSettings(requests_per_second=5, burst_s=2),
            LimitSettings(tokens_per_second=900, concurrent=3, longer_than=64, up_to=256),
        ),
        max_queued_requests=7,
        slo_ms=70,
        slo={"m": 30},
    )
    policy = server_policy(Settings(tenants={"a": tenant}), {})
    assert dict(policy.tenants) == {
        "a": TenantPolicy(
            weight=2,
            limits=(
                RateLimit(requests_per_second=5, burst=2, beyond=0, up_to=NEVER),
                RateLimit(tokens_per_second=900, concurrent=3, beyond=64, up_to=256),
            ),
            max_queued_requests=7,
            slos=(("", ms(70)), ("m", ms(30))),
        ),
        "default": TenantPolicy(),
    }
    assert policy.others == TenantPolicy()


def test_what_holds_for_all_others_is_told_apart_from_those_that_are_named():
    policy = server_policy(Settings(other_tenants=OtherTenants(weight=0.5, max_queued_requests=9)), {})
    assert policy.others == TenantPolicy(weight=0.5, max_queued_requests=9)
    assert policy.tenants == (("default", policy.others),), "it has a name, and no rules of its own"


def test_the_default_tenant_may_have_rules_of_its_own():
    policy = server_policy(Settings(tenants={"default": TenantSettings(weight=5), "a": TenantSettings()}), {})
    assert policy.tenants == (("default", TenantPolicy(weight=5)), ("a", TenantPolicy()))


@pytest.mark.parametrize(
    ("own", "tenants", "others", "tightest"),
    [
        (0, {}, {}, 0),
        (70, {}, {}, 70),
        (70, {"slo": {"m": 30}}, {}, 30),
        (70, {"slo_ms": 90}, {}, 70),
        (70, {}, {"slo_ms": 20}, 20),
        (0, {"slo": {"another": 30}}, {}, 0),
        (0, {"slo_ms": 30}, {}, 30),
    ],
)
def test_a_model_is_run_by_the_tightest_of_its_own_and_all_tenants_slos(own, tenants, others, tightest):
    settings = Settings(tenants={"a": TenantSettings(**tenants)}, other_tenants=OtherTenants(**others))
    assert tightest_slo_ms(settings, "m", own) == tightest
    assert batch_policy(ModelSettings(slo_ms=own), PLACE, slo_ms=tightest).slo == ms(tightest)


def test_a_tenant_without_an_slo_is_not_held_to_another_tenants():
    settings = Settings(tenants={"hasty": TenantSettings(slo={"m": 30}), "calm": TenantSettings()})
    policies = dict(server_policy(settings, {}, {"m": 70}).tenants)
    run_by = batch_policy(ModelSettings(slo_ms=70), PLACE, slo_ms=tightest_slo_ms(settings, "m", 70)).slo
    assert policies["calm"].slo("m", run_by) == ms(70)
    assert policies["hasty"].slo("m", run_by) == ms(30)


@pytest.mark.parametrize("own", [0, 70, 200])
def test_a_tenant_without_an_slo_keeps_the_models_own_also_where_that_is_none(own):
    """Though the model is run by another tenant's, which is tighter."""
    settings = Settings(
        tenants={"hasty": TenantSettings(slo={"m": 30}), "calm": TenantSettings(), "all": TenantSettings(slo_ms=90)}
    )
    policy = server_policy(settings, {}, {"m": own})
    run_by = ms(tightest_slo_ms(settings, "m", own))
    assert run_by == ms(30)
    policies = dict(policy.tenants)
    assert policies["calm"].slo("m", run_by) == policy.others.slo("m", run_by) == ms(own)
    assert (policies["hasty"].slo("m", run_by), policies["all"].slo("m", run_by)) == (ms(30), ms(90))


def test_model_settings_become_its_batch_policy():
    batching = Batching(
        max_batch_size=8,
        max_batch_tokens=100,
        max_batch_mb=0.5,
        max_batch_ms=20,
        max_queue_delay_ms=1.5,
        hold=True,
        max_queued_requests=5,
        max_queued_rows=6,
    )
    assert batch_policy(ModelSettings(batching=batching), PLACE) == BatchPolicy(
        max_batch_size=8,
        max_batch_tokens=100,
        max_batch_bytes=1 << 19,
        max_batch_time=ms(20),
        max_queue_delay=ms(1.5),
        hold=True,
        max_queued_requests=5,
        max_queued_rows=6,
        device="cpu",
        cores=3,
    )


def test_what_is_done_about_failures_is_the_models_own_setting():
    settings = ModelSettings(idempotent=False, max_attempts=3, hang_s=1.5, quarantine_s=60)
    policy = batch_policy(settings, PLACE)
    assert (policy.idempotent, policy.max_attempts) == (False, 3)
    assert (policy.hang_floor, policy.quarantine) == (seconds(1.5), seconds(60))
    assert batch_policy(ModelSettings(hang_s=0), PLACE).hang_floor == 0


def test_what_is_not_set_about_failures_is_what_the_scheduler_would_do_by_itself():
    settled, own = batch_policy(ModelSettings(), PLACE), BatchPolicy()
    for name in ("idempotent", "max_attempts", "hang_floor", "quarantine"):
        assert getattr(settled, name) == getattr(own, name), name


@pytest.mark.parametrize(("mebibytes", "expected"), [(0, 0), (2, 2 << 20), (1e-9, 1)])
def test_a_cap_in_bytes_however_small_is_never_taken_for_none(mebibytes, expected):
    settings = ModelSettings(batching=Batching(max_batch_mb=mebibytes))
    assert batch_policy(settings, PLACE).max_batch_bytes == expected


@pytest.mark.parametrize(
    ("slo_ms", "delay_ms", "expected"),
    [(0, None, (0, ms(5), True)), (70, None, (ms(70), ms(5), True)), (70, 3, (ms(70), ms(3), False))],
)
def test_an_slo_is_always_told_and_the_delay_is_derived_from_it_unless_it_is_set(slo_ms, delay_ms, expected):
    policy = batch_policy(ModelSettings(slo_ms=slo_ms, batching=Batching(max_queue_delay_ms=delay_ms)), PLACE)
    assert (policy.slo, policy.max_queue_delay, policy.derive_delay) == expected


@pytest.mark.parametrize(("of_model", "expected"), [(0, 8), (4, 4), (100, 8)])
def test_the_lower_of_the_operators_and_the_models_own_batch_size_counts(of_model, expected):
    settings = ModelSettings(batching=Batching(max_batch_size=8))
    assert batch_policy(settings, PLACE, model_max_batch_size=of_model).max_batch_size == expected


def test_a_streaming_model_is_scheduled_by_sequences_and_takes_no_cores():
    policy = batch_policy(ModelSettings(), PLACE, streaming=True)
    assert (policy.style, policy.device, policy.cores) == (Style.SEQUENCE, "cpu", 0)


def slot(state: State, is_out: bool = False, cause: str = "", wait: int = 0) -> Any:
    return SimpleNamespace(
        worker=SimpleNamespace(state=state), is_out=is_out, last_cause=cause, expected_wait=lambda now: wait
    )


@pytest.mark.parametrize(
    ("slots", "meta", "draining", "state", "reason", "retry_after"),
    [
        ([], None, False, "loading", "", 0),
        ([slot(State.STARTING, wait=seconds(2))], None, False, "loading", "", seconds(2)),
        ([slot(State.STARTING, cause="exit code 3", wait=5)], None, False, "loading", "exit code 3", 5),
        ([slot(State.READY), slot(State.LOST, True, "x")], META, False, "ready", "", 0),
        ([slot(State.STARTING, cause="signal SIGKILL", wait=7)], META, False, "unavailable", "signal SIGKILL", 7),
        ([slot(State.LOST, True, "x"), slot(State.STARTING, wait=9)], META, False, "unavailable", "x", 9),
        ([slot(State.LOST, True, "load failed: no")], None, False, "failed", "load failed: no", 0),
        ([slot(State.LOST, True, "x", wait=9), slot(State.LOST, True, "x")], META, False, "failed", "x", 9),
        ([slot(State.READY)], META, True, "draining", "", 0),
    ],
)
def test_a_versions_state_follows_from_its_slots(slots, meta, draining, state, reason, retry_after):
    status = version_status(V, slots, meta, draining, 0)
    assert (status.state, status.reason, status.retry_after, status.meta) == (state, reason, retry_after, meta)


def test_the_gateway_hears_when_a_version_is_expected_back_each_time_that_it_dies_of_the_same():
    told: list[Any] = []
    spec = VersionSpec("m", 1, "/nowhere", "onnx", ModelSettings())
    crew = LiveCrew({V: spec}, {V: PLACE}, lambda event: None, told.append, NullObserver(), lambda: 0)
    slots = [slot(State.STARTING, cause="signal SIGKILL", wait=seconds(1))]
    crew.join(SimpleNamespace(slots={V: slots}), SimpleNamespace())  # type: ignore[arg-type]
    starting: Any = SimpleNamespace(id=1, version=V)
    crew.worker_starting(starting, seconds(1))
    slots[0] = slot(State.STARTING, cause="signal SIGKILL", wait=seconds(8))
    crew.worker_starting(starting, seconds(8))
    assert [status.retry_after for status in told] == [seconds(1), seconds(8)]
    slots[0] = slot(State.READY, cause="signal SIGKILL")
    for _ in range(2):
        crew.slot_given_up(V)
    assert [status.state for status in told[2:]] == ["ready"], "and what is not new it does not hear"


def test_a_worker_that_ended_never_becomes_anything_else():
    assert [state for state in State if not LEGAL[state]] == [State.STOPPED, State.LOST]

"""What another reading of the configuration changes: all that can at once, or nothing; the rest is said."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway.cli.reload import Reloader
from headway.config.changes import differences
from headway.config.errors import ConfigError, Problem
from headway.config.load import Config
from headway.config.settings import Batching, Limits, ModelSettings, Scheduling, Server, Settings
from headway.config.tenants import KeySettings, OtherTenants, TenantSettings
from headway.registry.spec import VersionSpec

KEY = KeySettings("k1", "ab" * 32)
KEYED = Settings(tenants={"a": TenantSettings(keys=(KEY,))})


def spec(name: str = "m", version: int = 1, **settings: Any) -> VersionSpec:
    return VersionSpec(name, version, f"/nowhere/{name}/{version}", "onnx", ModelSettings(**settings))


class Reading:
    """Reloads from `before` to whatever `now` says, and keeps what was applied."""

    def __init__(self, before: Settings, *specs: VersionSpec) -> None:
        self.now: tuple[Settings, list[VersionSpec]] | ConfigError = (before, list(specs))
        self.applied: list[tuple[Settings, list[VersionSpec]]] = []
        self.reload = Reloader(Config(Path("f.toml"), before), specs, self._read, self._apply)

    def _read(self) -> tuple[Config, list[VersionSpec]]:
        if isinstance(self.now, ConfigError):
            raise self.now
        return Config(Path("f.toml"), self.now[0]), self.now[1]

    def _apply(self, config: Config, settings: Settings, specs: list[VersionSpec]) -> None:
        self.applied.append((settings, specs))

    def __call__(self, settings: Settings, *specs: VersionSpec) -> dict[str, Any]:
        self.now = settings, list(specs)
        return asyncio.run(self.reload())


def test_differences_are_places_and_a_table_that_is_new_is_one() -> None:
    old = Settings(tenants={"a": TenantSettings(), "b": TenantSettings()}, server=Server(port=1))
    new = Settings(
        tenants={"a": TenantSettings(weight=2, slo={"m": 3}), "c d": TenantSettings()}, server=Server(port=2)
    )
    assert list(differences(old, new)) == [
        "server.port",
        "tenants.a.weight",
        "tenants.a.slo.m",
        "tenants.b",
        'tenants."c d"',
    ]


def test_tenants_keys_order_of_service_and_batching_change_at_once() -> None:
    reading = Reading(KEYED, spec(slo_ms=50))
    new = Settings(
        server=Server(admin_keys=(KEY,), require_keys=True),
        tenants={"b": TenantSettings(weight=3)},
        other_tenants=OtherTenants(slo_ms=20),
        scheduling=Scheduling(patience_ms=(1, 2)),
    )
    changed = spec(slo_ms=30, batching=Batching(max_batch_size=4, hold=True))
    told = reading(new, changed)
    assert reading.applied == [(new, [changed])]
    assert told == {
        "reloaded": True,
        "changed": [
            "server.require_keys",
            "server.admin_keys",
            "scheduling.patience_ms",
            "tenants.a",
            "tenants.b",
            "other_tenants.slo_ms",
            "models.m.slo_ms",
            "models.m.batching.max_batch_size",
            "models.m.batching.hold",
        ],
        "needs_restart": [],
    }


def test_what_is_done_about_failures_changes_at_once() -> None:
    reading = Reading(Settings(), spec())
    changed = spec(idempotent=False, max_attempts=1, hang_s=0, quarantine_s=5)
    told = reading(Settings(), changed)
    assert reading.applied == [(Settings(), [changed])]
    names = ("idempotent", "max_attempts", "hang_s", "quarantine_s")
    assert sorted(told["changed"]) == sorted(f"models.m.{name}" for name in names) and not told["needs_restart"]


def test_what_needs_a_restart_is_said_and_stays_as_it_was_while_the_rest_changes() -> None:
    before = Settings(server=Server(port=1), limits=Limits(max_parts=5))
    reading = Reading(before, spec("m"), spec("gone"))
    new = Settings(server=Server(port=2), limits=Limits(max_parts=6), other_tenants=OtherTenants(weight=2))
    for _ in range(2):  # the second time nothing changes, and the restart is still due
        told = reading(new, spec("m", instances=2), spec("m", version=2), spec("new"))
        assert told["needs_restart"] == [
            "server.port",
            "limits.max_parts",
            "models.m.instances",
            "gone/1 is not in the repository any more",
            "m/2 is new in the repository",
            "new/1 is new in the repository",
        ]
    assert told["changed"] == []
    assert [settings for settings, _ in reading.applied] == [
        msgspec.structs.replace(before, other_tenants=OtherTenants(weight=2))
    ] * 2
    assert reading.applied[0][1] == [spec("m"), spec("gone")]


def test_where_every_batch_has_a_fixed_size_that_needs_a_restart() -> None:
    reading = Reading(Settings(), spec(batch_invariant=True))
    told = reading(Settings(), spec(batch_invariant=True, batching=Batching(max_batch_size=4, max_batch_ms=9)))
    assert told["changed"] == ["models.m.batching.max_batch_ms"]
    assert told["needs_restart"] == ["models.m.batching.max_batch_size"]
    assert reading.applied[0][1][0].settings.batching == Batching(max_batch_ms=9)


def refused(reading: Reading, *now: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        reading(*now)
    assert reading.applied == []
    return [str(problem) for problem in caught.value.problems]


def test_a_file_with_problems_changes_nothing_and_all_of_them_are_told(caplog: pytest.LogCaptureFixture) -> None:
    reading = Reading(KEYED, spec())
    reading.now = ConfigError([Problem("f.toml", "a", "wrong"), Problem("f.toml", "b", "wrong too")])
    with pytest.raises(ConfigError):
        asyncio.run(reading.reload())
    assert reading.applied == []
    assert [record.getMessage() for record in caplog.records] == [
        "configuration not reloaded: f.toml: a: wrong",
        "configuration not reloaded: f.toml: b: wrong too",
    ]
    assert reading(KEYED, spec())["changed"] == []


def test_taking_the_last_key_away_lets_nobody_in() -> None:
    (problem,) = refused(Reading(KEYED, spec()), Settings(), spec())
    assert problem.startswith("f.toml: tenants: no tenant has a key any more, which would let everybody in")
    strict = Settings(server=Server(require_keys=True))
    assert Reading(KEYED, spec())(strict, spec())["changed"] == ["server.require_keys", "tenants.a"]


def test_what_is_right_only_after_a_restart_is_refused_until_then() -> None:
    new = Settings(server=Server(request_timeout_s=90), other_tenants=OtherTenants(default_deadline_ms=80_000))
    (problem,) = refused(Reading(Settings(), spec()), new, spec())
    assert "other_tenants.default_deadline_ms" in problem and "needs a restart together with the rest" in problem
    (problem,) = refused(Reading(Settings(), spec()), Settings(), spec(fallback="new"), spec("new"))
    assert "models.m.fallback: no model 'new' here" in problem


def test_reloads_come_one_after_the_other() -> None:
    reading = Reading(Settings(), spec())
    plain, reads, another = reading._read, [], threading.Event()

    def read() -> tuple[Config, list[VersionSpec]]:
        reads.append(len(reading.applied))
        if len(reads) == 1:
            another.wait(0.2)  # for a second one, which must not begin before this one is done
        another.set()
        return plain()

    reading.reload._read = read

    async def both() -> None:
        await asyncio.gather(reading.reload(), reading.reload())

    asyncio.run(both())
    assert reads == [0, 1]

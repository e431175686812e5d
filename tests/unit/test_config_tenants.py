"""Tenants, keys and admin routes in the configuration file: every problem with its place, and no key repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.config.errors import ConfigError
from headway.config.explain import toml
from headway.config.load import load_config
from headway.config.settings import ModelSettings, Settings, Torch
from headway.config.tenants import KeySettings, LimitSettings, TenantSettings
from headway.registry.references import wrong_references
from headway.registry.spec import VersionSpec
from tests.unit.test_config_load import problems_of

SHA = "ab" * 32
KEY = "hw_k1_this-is-the-secret-itself-and-nobody-elses"
A_KEY = f'keys = [{{ id = "k1", sha256 = "{SHA}" }}]'


def settings_of(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "headway.toml"
    path.write_text(text)
    return load_config(path).settings


def test_keys_and_limits_are_lists_of_tables(tmp_path: Path) -> None:
    text = f"""
[tenants.acme]
weight = 3
classes = [1, 2]
models = ["m"]
default_deadline_ms = 500
slo = {{ m = 50 }}
[[tenants.acme.limits]]
requests_per_second = 5
[[tenants.acme.limits]]
concurrent = 2
longer_than = 64
[[tenants.acme.keys]]
id = "k1"
sha256 = "{SHA}"
[other_tenants]
weight = 0.5
"""
    settings = settings_of(tmp_path, text)
    assert settings.tenants["acme"] == TenantSettings(
        weight=3,
        classes=(1, 2),
        models=("m",),
        default_deadline_ms=500,
        slo={"m": 50},
        limits=(LimitSettings(requests_per_second=5), LimitSettings(concurrent=2, longer_than=64)),
        keys=(KeySettings("k1", SHA),),
    )
    assert settings.other_tenants.weight == 0.5


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"tenant_header = 'x-tenant'\n[tenants.a]\n{A_KEY}", "tenant_header"),
        ("tenant_header = 'x-tenant'\n[server]\nrequire_keys = true", "tenant_header"),
        ("[tenants.a]\n[[tenants.a.keys]]\nid = 'k_1'\nsha256 = '" + SHA + "'", "tenants.a.keys[0].id"),
        ("[tenants.a]\n[[tenants.a.keys]]\nsha256 = '" + SHA + "'", "tenants.a.keys[0].id"),
        ("[tenants.a]\n[[tenants.a.keys]]\nid = 'k'\nsha256 = 'ab'", "tenants.a.keys[0].sha256"),
        (f"[tenants.a]\n{A_KEY}\n[tenants.b]\n{A_KEY}", "tenants.b.keys[0].id"),
        (f"[tenants.a]\n{A_KEY}\n[server]\nadmin_{A_KEY}", "tenants.a.keys[0].id"),
        (f"[tenants.other]\n{A_KEY}", "tenants.other"),
        (f"[tenants.{'x' * 65}]\n{A_KEY}", f"tenants.{'x' * 65}"),
        (f"[tenants.a]\n{A_KEY}\nclasses = [0, 3]", "tenants.a.classes[1]"),
        (f"[tenants.a]\n{A_KEY}\ndefault_deadline_ms = 60001", "tenants.a.default_deadline_ms"),
        (f"[tenants.a]\n{A_KEY}\nlimits = [{{ burst_s = 2 }}]", "tenants.a.limits[0]"),
        (
            f"[tenants.a]\n{A_KEY}\nlimits = [{{ concurrent = 1 }}, {{ requests_per_second = 0.5 }}]",
            "tenants.a.limits[1].burst_s",
        ),
        (
            f"[tenants.a]\n{A_KEY}\nlimits = [{{ concurrent = 1, longer_than = 64, up_to = 64 }}]",
            "tenants.a.limits[0].up_to",
        ),
        ("[other_tenants]\nclasses = [7]", "other_tenants.classes[0]"),
        ("[server]\nadmin_port = 8000", "server.admin_port"),
        ("[server]\nadmin_port = 1\nallow_remote_admin = true", "server.allow_remote_admin"),
        ("[server]\nadmin_host = ''", "server.admin_host"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, text: str, place: str) -> None:
    assert [problem.split(": ")[0] for problem in problems_of(tmp_path, text)] == [place]


@pytest.mark.parametrize(
    "text",
    [
        f"[tenants.a]\nkeys = ['{KEY}']",
        f"[tenants.a]\nkeys = '{KEY}'",
        f"[tenants.a]\nkeys = {{ '{KEY[:20]}' = '{KEY}' }}",
        f"[tenants.a]\nkeys = [['{KEY}']]",
        f"[tenants.a]\nkeys = [{{ id = 'k1', sha256 = '{KEY}' }}]",
        f"[tenants.a]\nkeys = [{{ id = '{KEY}', sha256 = '{SHA}' }}]",
        f"[tenants.a]\nkeys = [{{ id = ['{KEY}'] }}]",
        f"[server]\nadmin_keys = ['{KEY}']",
        f"[server]\nadmin_keys = [{{ id = 'k', sha256 = '{KEY}' }}]",
        f"[other_tenants]\nkeys = ['{KEY}']",
    ],
)
def test_a_key_that_was_put_where_its_hash_belongs_is_not_repeated(tmp_path: Path, text: str) -> None:
    problems = problems_of(tmp_path, text)
    assert problems and "secret-itself" not in "".join(problems)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"[tenants.a]\nkeys = [{{ id = 'k1', sha256 = '{KEY}' }}]", "got what looks like the key itself"),
        (
            f"[tenants.a]\n{A_KEY}\n[tenants.a.limits]\nconcurrent = 1",
            "each entry a table, as [[tenants.a.limits]] makes",
        ),
    ],
)
def test_what_is_often_done_wrong_is_told_how_it_is_done(tmp_path: Path, text: str, words: str) -> None:
    (problem,) = problems_of(tmp_path, text)
    assert words in problem


def test_a_tenant_that_has_lost_its_last_key_is_no_problem_where_others_have_keys(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, f"[tenants.a]\n{A_KEY}\n[tenants.b]\nweight = 2")
    assert settings.tenants["b"].keys == ()


def test_a_list_of_tables_is_shown_as_toml_that_reads_back() -> None:
    limits = (LimitSettings(concurrent=2), LimitSettings(requests_per_second=1.5, up_to=64))
    assert toml(limits) == "[{burst_s = 1, concurrent = 2}, {requests_per_second = 1.5, burst_s = 1, up_to = 64}]"


def spec(name: str, **settings: object) -> VersionSpec:
    return VersionSpec(name, 1, f"/nowhere/{name}", "torch", ModelSettings(**settings))  # type: ignore[arg-type]


def places(settings: Settings, *specs: VersionSpec) -> list[str]:
    return [problem.place for problem in wrong_references(settings, specs, "f.toml")]


def test_models_that_tenants_name_must_exist() -> None:
    settings = Settings(tenants={"a": TenantSettings(models=("m", "n"), slo={"m": 5, "o": 5})})
    assert places(settings, spec("m")) == ["tenants.a.models[1]", "tenants.a.slo.o"]
    (problem, _) = wrong_references(settings, [spec("m")], "f.toml")
    assert "no model 'n' here; there are: m" in problem.text


@pytest.mark.parametrize(
    ("specs", "wrong"),
    [
        ([spec("a", fallback="b"), spec("b")], []),
        ([spec("a", fallback="b"), spec("b", fallback="c"), spec("c")], []),
        ([spec("a", fallback="nope")], ["models.a.fallback"]),
        ([spec("a", fallback="a")], ["models.a.fallback"]),
        ([spec("a", fallback="b"), spec("b", fallback="a")], ["models.a.fallback", "models.b.fallback"]),
        (
            [spec("a", fallback="b"), spec("b", fallback="c"), spec("c", fallback="b")],
            ["models.b.fallback", "models.c.fallback"],
        ),
        (
            [
                spec("a", fallback="b", torch=Torch(inputs={"x": ("FP32", (-1, 4))})),
                spec("b", torch=Torch(inputs={"x": ("FP32", (-1, 8)), "y": ("FP32", (-1,))})),
            ],
            ["models.a.fallback", "models.a.fallback"],
        ),
    ],
)
def test_a_fallback_exists_leads_nowhere_back_and_takes_the_same_inputs(specs: list[VersionSpec], wrong: list[str]):
    assert places(Settings(), *specs) == wrong


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    text = "[tenants.a]\nclasses = [9]\ndefault_deadline_ms = 1e9\n[[tenants.a.keys]]\n"
    with pytest.raises(ConfigError) as caught:
        settings_of(tmp_path, text)
    assert [problem.place for problem in caught.value.problems] == [
        "tenants.a.keys[0].id",
        "tenants.a.keys[0].sha256",
        "tenants.a.classes[0]",
        "tenants.a.default_deadline_ms",
    ]

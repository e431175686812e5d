"""`--show`: what is in force, and where it comes from."""

from __future__ import annotations

import tomllib

import msgspec

from headway.config.explain import Source, explain
from headway.config.settings import ModelSettings, Settings


def test_each_setting_comes_with_its_source() -> None:
    settings = msgspec.convert({"server": {"port": 9}}, Settings)
    lines = list(explain(settings, [Source("headway.toml", {"server": {"port": 9}})]))
    assert "port = 9  # headway.toml" in lines
    assert 'host = "127.0.0.1"  # default' in lines


def test_a_table_of_the_stronger_source_hides_that_of_the_weaker() -> None:
    manifest = {"instances": 2, "batching": {"hold": True, "max_batch_size": 8}}
    override = {"batching": {"max_batch_size": 4}}
    settings = msgspec.convert({**manifest, **override}, ModelSettings)
    lines = list(explain(settings, [Source("headway.toml", override), Source("model.toml", manifest)], "models.m"))
    assert "instances = 2  # model.toml" in lines
    assert "max_batch_size = 4  # headway.toml" in lines
    assert "hold = false  # default" in lines


def test_single_settings_of_a_stronger_source_hide_only_themselves() -> None:
    line, file = {"server": {"models": "m"}}, {"server": {"models": "n", "port": 9}}
    settings = msgspec.convert({"server": {"models": "m", "port": 9}}, Settings)
    lines = list(explain(settings, [Source("command line", line, whole=False), Source("headway.toml", file)]))
    assert 'models = "m"  # command line' in lines
    assert "port = 9  # headway.toml" in lines


def test_what_is_shown_is_toml_and_means_the_same() -> None:
    raw = {
        "slo_ms": 0.5,
        "per_row_parameters": ["a", 'quo"te'],
        "inputs": {"ids with space": {"pad_axis": 2, "pad_value": -1.5}},
        "embeddings": {},
        "options": {"deep": {"list": [1, {"x": True}]}, "text": "a\nb"},
    }
    settings = msgspec.convert(raw, ModelSettings)
    shown = tomllib.loads("\n".join(explain(settings, [Source("model.toml", raw)])))
    assert msgspec.convert(shown, ModelSettings) == settings

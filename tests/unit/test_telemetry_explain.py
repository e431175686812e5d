"""What is said of a version: values with who decided them, predictions, rates, the SLO in parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.config.explain import Source
from headway.config.settings import Batching, Limits, ModelSettings, Settings
from headway.core.events import RequestArrived, ServerConfigured, VersionConfigured, WorkerReady, WorkerStarting
from headway.core.ids import BatchKey, Capacity, Measurement, Part, VersionId
from headway.core.policy import ServerPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import ms
from headway.core.views import SizeSeen, detail
from headway.registry.placement import lay_out
from headway.registry.spec import VersionSpec
from headway.runtime.policies import batch_policy
from headway.telemetry.counters import Counters
from headway.telemetry.explain import Explainer
from headway.telemetry.histogram import Histogram
from headway.telemetry.in_force import Deciders
from headway.telemetry.learned import lengths
from headway.wire.safety import SafetyReport

V = VersionId("m", 1)
GRID = tuple(
    Measurement(rows, length, ms(1) + ms(0.1) * rows * length) for rows in (1, 2, 8, 32) for length in (8, 64, 256)
)


def explained(
    written: dict[str, Any] | None = None,
    settings: ModelSettings | None = None,
    *,
    model_max: int = 0,
    streaming: bool = False,
    grid: tuple[Measurement, ...] = GRID,
    cores: int = 4,
    others: tuple[VersionSpec, ...] = (),
    arrived: tuple[RequestArrived, ...] = (),
    safety: SafetyReport | None = None,
) -> dict[str, Any]:
    """written: what model.toml says, of what `settings` are the reading.  others: served beside it."""
    settings = settings or ModelSettings()
    specs = [VersionSpec("m", 1, "/nowhere", "onnx", settings), *others]
    layout = lay_out(specs, cores)
    counters, core = Counters(), Scheduler()
    events = [
        ServerConfigured(ServerPolicy(devices=tuple(layout.devices.items()))),
        *(
            VersionConfigured(VersionId(spec.model, spec.version), batch_policy(spec.settings, place))
            for spec, place in zip(specs, layout.places, strict=True)
        ),
        VersionConfigured(V, batch_policy(settings, layout.places[0], streaming, model_max)),
        WorkerStarting(3, V),
        WorkerReady(3, Capacity(1), grid),
        *arrived,
    ]
    counters.handled(0, events, core.handle(events, 0))
    for overhead in (ms(4), ms(4), ms(4)):
        counters.versions[V].phases.add((overhead, ms(1), 0, ms(2), 0, 0))
    deciders = Deciders(
        [Source("headway.toml", {}), Source("model.toml", written or {})],
        [Source("headway.toml", {"limits": {"max_queued_mb": 7}})],
    )
    explain = Explainer(
        Settings(limits=Limits(max_queued_mb=7)),
        specs,
        {"m": deciders},
        counters,
        lambda version, now: detail(core, version, now),
        lambda: 0,
        lambda: {V: safety} if safety else {},
    )
    told = explain("m", 1)
    assert told is not None
    assert json.loads(json.dumps(told)) == told, "plain JSON values"
    return told


def value(told: dict[str, Any], name: str) -> tuple[Any, str]:
    (found,) = [entry for entry in told["values"] if entry["name"] == name]
    return found["value"], found["origin"]


def test_a_value_comes_from_the_file_that_says_it_or_is_a_default() -> None:
    told = explained({"batching": {"max_batch_size": 8}}, ModelSettings(batching=Batching(max_batch_size=8)))
    assert value(told, "max_batch_size") == (8, "model.toml")
    assert value(told, "max_queue_delay_ms") == (5, "default")
    assert value(told, "limits.max_queued_mb") == (7, "headway.toml")


def test_a_cap_that_the_model_itself_lowers_is_said_to_be_the_models() -> None:
    assert value(explained(model_max=4), "max_batch_size") == (4, "the model")


def test_the_automatic_cap_in_time_is_told_as_the_number_that_it_is() -> None:
    assert value(explained(), "max_batch_ms") == (250, "automatic")
    held = ModelSettings(batching=Batching(hold=True))
    assert value(explained({"batching": {"hold": True}}, held), "max_batch_ms") == (0, "default")
    fixed = ModelSettings(batching=Batching(max_batch_ms=40))
    assert value(explained({"batching": {"max_batch_ms": 40}}, fixed), "max_batch_ms") == (40, "model.toml")


def test_the_cap_in_bytes_is_told_in_the_unit_of_its_setting() -> None:
    capped = ModelSettings(batching=Batching(max_batch_mb=1.5))
    assert value(explained({"batching": {"max_batch_mb": 1.5}}, capped), "max_batch_mb") == (1.5, "model.toml")
    assert value(explained(), "max_batch_mb") == (0, "default")


def test_half_of_the_slo_is_the_automatic_cap_in_time_where_it_is_less() -> None:
    assert value(explained(settings=ModelSettings(slo_ms=50)), "max_batch_ms") == (25, "automatic")
    assert value(explained(settings=ModelSettings(slo_ms=900)), "max_batch_ms") == (250, "automatic")
    held = ModelSettings(slo_ms=900, batching=Batching(hold=True))
    assert value(explained(settings=held), "max_batch_ms") == (450, "automatic")


def test_a_delay_that_is_derived_is_told_with_the_parts_that_it_is_made_of() -> None:
    told = explained({"slo_ms": 50}, ModelSettings(slo_ms=50))
    linger = told["slo"]["linger"]
    assert (linger["rows"], linger["length"], linger["outside_ms"], linger["fraction"]) == (1, 256, 0, 0.25)
    assert linger["left_ms"] == pytest.approx(50 - linger["run_ms"], abs=1e-3)
    assert 26 < linger["run_ms"] < 30
    assert value(told, "max_queue_delay_ms") == (linger["ceiling_ms"], "slo_ms")
    assert linger["ceiling_ms"] == pytest.approx(linger["left_ms"] / 4, abs=1e-3)


def test_a_delay_that_the_operator_fixed_is_told_as_his() -> None:
    fixed = ModelSettings(slo_ms=50, batching=Batching(max_queue_delay_ms=2))
    told = explained({"slo_ms": 50, "batching": {"max_queue_delay_ms": 2}}, fixed)
    assert value(told, "max_queue_delay_ms") == (2, "model.toml")
    assert told["slo"]["linger"] is None


def test_what_is_done_about_failures_is_told_with_who_decided_it() -> None:
    told = explained({"hang_s": 0}, ModelSettings(hang_s=0))
    assert value(told, "hang_s") == (0, "model.toml")
    assert value(told, "quarantine_s") == (600, "default")
    assert value(told, "max_attempts") == (2, "default")
    assert value(told, "idempotent") == (True, "default")


def test_threads_that_nobody_names_are_dealt_out_and_the_executor_follows_the_file() -> None:
    told = explained()
    assert value(told, "threads")[1] == "automatic"
    assert value(told, "executor") == ("onnx", "the file found")


def beside(name: str = "other", **settings: Any) -> VersionSpec:
    return VersionSpec(name, 2, "/nowhere", "onnx", ModelSettings(**settings))


def test_cores_that_nobody_names_are_the_threads_and_those_set_are_the_files() -> None:
    assert value(explained(), "cores") == (4, "automatic")
    assert value(explained(others=(beside(),)), "cores") == (2, "automatic")
    assert value(explained({"cores": 1}, ModelSettings(cores=1)), "cores") == (1, "model.toml")
    assert value(explained({"cores": 0}, ModelSettings(cores=0)), "cores") == (0, "model.toml")


def test_cores_beyond_those_there_are_are_told_as_all_of_them() -> None:
    told = explained({"cores": 9}, ModelSettings(cores=9))
    assert value(told, "cores") == (4, "model.toml")
    (entry,) = [entry for entry in told["values"] if entry["name"] == "cores"]
    assert entry["note"] == "all there are of cpu, which are fewer than 9"


DEVICE = {"name": "cpu", "cores": 4, "in_use": 0, "takes": 4, "trouble": "", "shared_with": []}


def test_a_streaming_model_takes_no_cores_and_a_worker_on_a_gpu_takes_a_turn_of_it() -> None:
    assert value(explained(streaming=True), "cores") == (0, "built in")
    told = explained({"device": "cuda:0"}, ModelSettings(device="cuda:0"), others=(beside(device="cuda:0"),))
    assert value(told, "cores") == (1, "automatic")
    assert told["device"] == DEVICE | {"name": "cuda:0", "cores": 1, "takes": 1, "shared_with": ["other/2"]}


def test_the_device_is_told_with_what_is_in_use_and_who_shares_it() -> None:
    assert explained()["device"] == DEVICE
    running = RequestArrived(1, "default", BatchKey("m", 1, "s"), (Part(1, 8),))
    others = (beside(), beside("third"), beside("elsewhere", device="cuda:0"))
    told = explained(others=others, arrived=(running,))["device"]
    assert told == DEVICE | {"in_use": 1, "takes": 1, "shared_with": ["other/2", "third/2"]}


def test_predictions_keep_within_the_caps_and_say_whether_batching_pays() -> None:
    told = explained(settings=ModelSettings(batching=Batching(max_batch_size=12, max_batch_tokens=640)))
    predicted = {(p["rows"], p["length"]): p for p in told["cost"]["predictions"]}
    assert [rows for rows, length in predicted if length == 8] == [1, 2, 4, 8, 12]
    assert [rows for rows, length in predicted if length == 256] == [1, 2]
    assert predicted[8, 8]["speedup"] > 1.5, "the fixed part is shared"
    assert abs(predicted[1, 8]["per_row_ms"] - 1.8) < 0.2
    assert all(p["lower_ms"] <= p["median_ms"] <= p["upper_ms"] for p in told["cost"]["predictions"])


def test_sizes_beyond_the_cap_in_time_are_marked() -> None:
    told = explained(settings=ModelSettings(batching=Batching(max_batch_ms=100)))
    allowed = {(p["rows"], p["length"]): p["allowed"] for p in told["cost"]["predictions"]}
    assert allowed[1, 256]
    assert not allowed[8, 256]


def test_what_was_never_measured_has_no_predictions() -> None:
    told = explained(grid=(), settings=ModelSettings(slo_ms=50))
    assert (told["cost"]["measured"], told["cost"]["predictions"], told["slo"]["batches"]) == (0, [], [])


def test_the_slo_is_split_into_run_time_the_servers_own_part_and_what_is_left_for_waiting() -> None:
    slo = explained(settings=ModelSettings(slo_ms=50))["slo"]
    assert slo["outside"]["requests"] == 3
    assert 2 <= slo["outside"]["usual_ms"] <= slo["outside"]["rare_ms"] <= 5
    (alone,) = [b for b in slo["batches"] if (b["rows"], b["length"]) == (1, 8)]
    assert alone["left_usual_ms"] == pytest.approx(50 - alone["run_usual_ms"] - slo["outside"]["usual_ms"], abs=1e-3)
    assert alone["left_rare_ms"] == pytest.approx(50 - alone["run_rare_ms"] - slo["outside"]["rare_ms"], abs=1e-3)
    several = [b["run_rare_ms"] for b in slo["batches"] if b["rows"] > 1]
    assert several and max(several) <= 2 * 30, "sizes that the caps allow: half of the SLO, or twice one row"


def test_without_an_slo_there_is_no_budget() -> None:
    assert explained()["slo"] is None


def test_a_streaming_model_has_sequences_instead_of_batches() -> None:
    told = explained(streaming=True, settings=ModelSettings(slo_ms=50))
    assert (told["cost"], told["slo"]) == (None, None)
    assert value(told, "max_sequences") == (8, "default")
    assert "max_batch_size" not in [entry["name"] for entry in told["values"]]


def test_workers_and_what_waits_are_told() -> None:
    told = explained()
    assert [(worker["worker"], worker["state"]) for worker in told["workers"]] == [(3, "ready")]
    assert (told["waiting"]["requests"], told["waiting"]["oldest_ms"]) == (0, 0)


def test_the_lengths_shown_are_the_shortest_the_middle_of_all_rows_and_the_longest() -> None:
    assert lengths([]) == [8, 32, 128]
    assert lengths([SizeSeen(1, 1, 5, ms(1))]) == [1]
    seen = [SizeSeen(1, 4, 3, 0), SizeSeen(8, 40.4, 10, 0), SizeSeen(1, 90, 3, 0), SizeSeen(2, 256, 1, 0)]
    assert lengths(seen) == [4, 40, 256]


def test_a_quantile_lies_in_the_bucket_of_its_value() -> None:
    histogram = Histogram((10, 20, 50))
    assert histogram.quantile(0.5) == 0
    for value_ in (3, 12, 14, 16, 45, 1000):
        histogram.add(value_)
    assert 10 < histogram.quantile(0.5) <= 20
    assert 20 < histogram.quantile(0.8) <= 50
    assert histogram.quantile(0.99) == 50


def test_a_version_that_the_core_does_not_know_yet_is_not_explained(tmp_path: Path) -> None:
    spec = VersionSpec("m", 1, str(tmp_path), "onnx", ModelSettings())
    explain = Explainer(Settings(), [spec], {"m": Deciders([], [])}, Counters(), lambda version, now: None, lambda: 0)
    assert explain("m", 1) is None

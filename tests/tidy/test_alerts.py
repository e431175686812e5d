"""The alert rules name metrics, labels and values of labels that the server exports."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.core import Metric

from headway.core.effects import KillWorker, Remedy, ResolveRequest, RetryParts
from headway.core.events import RequestArrived, VersionConfigured, WorkerLost, WorkerStarting
from headway.core.ids import BatchKey, Part, PartRef, VersionId
from headway.core.outcomes import Kind, Outcome
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.tenant_views import TenantShare
from headway.core.units import NEVER
from headway.core.views import devices
from headway.telemetry.counters import Counters
from headway.telemetry.histogram import DURATION_BOUNDS, Histogram
from headway.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[2]
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
NAME = r"headway_\w+"
VALUES = {"outcome": {kind.value for kind in Kind}, "code": {outcome.value for outcome in Outcome}}
"""Of labels that rules select by."""
V = VersionId("m", 1)


def exported() -> dict[str, set[str]]:
    """Each line of the page of a server to which everything happened once -> its labels."""
    core, counters = Scheduler(), Counters(["acme"])
    events = [VersionConfigured(V, BatchPolicy()), WorkerStarting(1, V), WorkerStarting(2, V)]
    events += [RequestArrived(1, "acme", BatchKey("m", 1, "s"), (Part(1, 1),)), WorkerLost(1)]
    effects = [*core.handle(events, 0), KillWorker(2, 1, "hangs"), ResolveRequest(1, Outcome.QUEUE_FULL)]
    counters.handled(0, events, [*effects, RetryParts(V, (PartRef(1, 0),), Remedy.AGAIN, "")])
    share = TenantShare("cpu", "acme", received=0, owed=0, starving=0, since=NEVER, spells=0)
    gauges = {"recorder_failures_total": 0.0}  # that the composition root names it another test holds
    page = Metrics(
        counters,
        core.views,
        Histogram(DURATION_BOUNDS),
        gauges=[lambda: gauges],
        devices=lambda: devices(core),
        shares=lambda: [share],
    ).collect()
    return {
        sample.name: set(sample.labels) for family in page if isinstance(family, Metric) for sample in family.samples
    }


EXPORTED = exported()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_names_metrics_that_the_server_exports(rule: dict[str, Any]) -> None:
    named = set(re.findall(NAME, rule["expr"]))
    assert named and named <= set(EXPORTED)
    assert rule["labels"]["severity"] in ("warning", "critical")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_selects_and_sums_by_labels_that_its_metrics_have(rule: dict[str, Any]) -> None:
    shared = set.intersection(*(EXPORTED[name] for name in re.findall(NAME, rule["expr"])))
    for grouped in re.findall(r"\bby \(([^)]*)\)", rule["expr"]):
        assert set(re.findall(r"\w+", grouped)) <= shared
    for name, selectors in re.findall(rf"({NAME})\{{([^}}]*)\}}", rule["expr"]):
        for label, values in re.findall(r'(\w+)=~?"([^"]*)"', selectors):
            assert label in EXPORTED[name]
            assert set(values.split("|")) <= VALUES[label]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_tells_only_labels_that_are_left_of_its_expression(rule: dict[str, Any]) -> None:
    summed = re.findall(r"\bby \(([^)]*)\)", rule["expr"])
    left = set(re.findall(r"\w+", summed[0])) if summed else EXPORTED[re.findall(NAME, rule["expr"])[0]]
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= left


def test_there_is_an_alert_for_every_kind_of_trouble() -> None:
    named = {metric for rule in RULES for metric in re.findall(NAME, rule["expr"])}
    assert named >= {
        "headway_circuit_open",
        "headway_device_lost",
        "headway_loop_lag_seconds_bucket",
        "headway_poison_requests_total",
        "headway_requests_total",
        "headway_retries_left",
        "headway_tenant_starving_seconds",
        "headway_version_ready",
        "headway_worker_losses_total",
        "headway_workers_hung_total",
    }

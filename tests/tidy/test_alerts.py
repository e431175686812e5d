"""The alert rules name metrics and labels that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.core.outcomes import Kind

ROOT = Path(__file__).parents[2]
TOLD = set(re.findall(r"`(headway_\w+)`", (ROOT / "docs" / "operations.md").read_text()))
"""Another test holds that these are the metrics that the server exports."""
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
SOURCES = "".join(path.read_text() for path in (ROOT / "src" / "headway" / "telemetry").glob("*famil*.py"))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_names_metrics_and_labels_that_there_are(rule: dict[str, Any]) -> None:
    metrics = set(re.findall(r"headway_\w+", rule["expr"]))
    assert metrics
    assert metrics <= TOLD
    assert set(re.findall(r'outcome="(\w+)"', rule["expr"])) <= {kind.value for kind in Kind}
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert all(f'"{label}"' in SOURCES for label in shown)
    assert rule["labels"]["severity"] in ("warning", "critical")


def test_there_is_an_alert_for_every_kind_of_trouble() -> None:
    named = {metric for rule in RULES for metric in re.findall(r"headway_\w+", rule["expr"])}
    assert {"headway_circuit_open", "headway_poison_requests_total", "headway_version_ready"} <= named

"""What the documents say of names, codes and files is so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.core.effects import Reason
from headway.core.outcomes import Outcome
from headway.gateway.errors import FACES, HeadwayError
from headway.gateway.gateway import Gateway
from headway.gateway.tokenizing import TokenizerUnavailable
from headway.runtime.losses import SIGNS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("*/README.md"))]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
TELEMETRY = ROOT / "src" / "headway" / "telemetry"
FAMILIES = ("families", "failure_families", "tenant_families", "metrics", "generation_families")
"""Where the metrics are named."""
LONGEST_ARCHITECTURE = 60

AT_START = (TokenizerUnavailable,)
"""Errors that end the start of a server and never become a reply."""


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def sections(document: Path) -> list[str]:
    """The anchors of a document's headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings]


assert Gateway, "with it come all modules that errors are in"


def subclasses(base: type[HeadwayError]) -> Iterator[type[HeadwayError]]:
    for one in base.__subclasses__():
        yield one
        yield from subclasses(one)


def faces() -> dict[str, tuple[int, bool]]:
    """Code -> HTTP status, and whether trying again may help."""
    of_outcomes = {o.value: (f.status, f.retryable) for o, f in FACES.items() if o is not Outcome.COMPLETED}
    of_errors = {
        error.code: (error.http_status, error.retryable)
        for error in subclasses(HeadwayError)
        if error.__module__.startswith("headway.") and error not in AT_START
    }
    return of_errors | of_outcomes


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_link_leads_to_something(document: Path) -> None:
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        path, _, section = link.partition("#")
        if "://" in link:
            continue
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (section and section not in sections(target)):
            dead.append(link)
    assert dead == []


def test_the_table_of_errors_is_the_gateways() -> None:
    told: dict[str, tuple[int, bool]] = {}
    for codes, status, again in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (\d+) \| (\w+) \|", OPERATIONS, re.MULTILINE):
        told |= {code: (int(status), again != "no") for code in re.findall(r"\w+", codes)}
    assert told == faces()


def test_the_table_of_losses_is_the_codes() -> None:
    failures = (ROOT / "docs" / "failures.md").read_text().partition("## What follows")[0]
    told = re.findall(r"^\| (.+) \| `(\w+)` \|$", failures, re.MULTILINE)
    assert told == [(sign, loss.value) for sign, loss in SIGNS.items()]


def test_every_line_of_the_protocols_table_has_a_test_that_names_it() -> None:
    protocol = (ROOT / "docs" / "protocol.md").read_text()
    rows = re.findall(r"^\| (C\d+) \| .+ \| (\S+\.py) \|$", protocol, re.MULTILINE)
    assert len(rows) > 45
    unnamed = [
        (line, file)
        for line, file in rows
        if not re.search(rf"\"\"\"[^\"]*\b{line}\b", (ROOT / "tests" / file).read_text())
    ]
    assert unnamed == []


def test_the_metrics_that_are_told_are_those_that_there_are() -> None:
    told = set(re.findall(r"`(headway_\w+)`", OPERATIONS))
    source = "".join((TELEMETRY / f"{name}.py").read_text() for name in FAMILIES)
    families = set(re.findall(r'"(headway_\w+)"', source))
    composed = (ROOT / "src" / "headway" / "cli" / "server.py").read_text().partition("def _gauges")[2]
    gauges = re.findall(r'^ +"(\w+)": ', composed.partition("def ")[0], re.MULTILINE)
    families |= {"headway_" + gauge.removesuffix("_total") for gauge in gauges}
    assert {re.sub(r"_(total|info)$", "", metric) for metric in told} == families


def test_the_names_that_vllm_has_for_metrics_are_those_that_are_there() -> None:
    told = set(re.findall(r"`(vllm:\w+)`", OPERATIONS))
    families = set(re.findall(r'"(vllm:\w+)"', (TELEMETRY / "vllm_families.py").read_text()))
    assert {metric.removesuffix("_total") for metric in told} == families


def test_the_readme_tells_the_reasons_in_their_order() -> None:
    readme = (ROOT / "README.md").read_text()
    table = readme.split("| reason |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [reason.value for reason in Reason]


def test_the_architecture_fits_on_a_page() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= LONGEST_ARCHITECTURE

"""What chaos must notice, planted into a real server: each of its oracles once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.planted import BUGS
from tests.chaos.run import ChaosFailed, chaos
from tests.chaos.stage import Plan

pytestmark = pytest.mark.e2e

BRIEF = Plan(seed=1, kills=4, gap_s=0.1, pause_s=0.02, patience_s=5)
"""Little patience: who waits for what is lost should not wait for long."""


@pytest.mark.parametrize("bug", [name for name, (_, noticed) in BUGS.items() if noticed])
def test_chaos_notices_that(tmp_path: Path, bug: str) -> None:
    with pytest.raises(ChaosFailed) as noticed:
        asyncio.run(chaos(tmp_path, replace(BRIEF, bug=bug)))
    for told in BUGS[bug][1]:
        assert told in str(noticed.value)
    assert "replay: python -m tests.chaos.run --seed 1 --kills 4" in str(noticed.value)

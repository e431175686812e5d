"""A short run of `make chaos`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from tests.chaos.faults import FAULTS, KILL, schedule
from tests.chaos.run import chaos
from tests.chaos.stage import Plan

pytestmark = pytest.mark.e2e


def test_whatever_happens_to_workers_no_well_behaved_client_notices_more_than_latency(tmp_path: Path) -> None:
    print(asyncio.run(chaos(tmp_path, Plan(seed=1, kills=12, gap_s=0.2))))


def test_a_schedule_has_every_fault_and_is_its_seeds() -> None:
    names = schedule(Random(1), 12)
    assert set(names) == set(FAULTS)
    assert names.count(KILL) == 12
    assert names == schedule(Random(1), 12) != schedule(Random(2), 12)

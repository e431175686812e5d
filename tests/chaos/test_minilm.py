"""A short run of `make chaos ARGS="--model minilm"`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.chaos.minilm import NAME, is_there
from tests.chaos.run import chaos
from tests.chaos.stage import Plan

pytestmark = pytest.mark.e2e


@pytest.mark.skipif(not is_there(), reason=f"{NAME} was not exported")
def test_whatever_happens_to_workers_of_minilm_its_answers_stay_those_that_it_gives_alone(tmp_path: Path) -> None:
    print(asyncio.run(chaos(tmp_path, Plan(seed=2, kills=4, minilm=True))))

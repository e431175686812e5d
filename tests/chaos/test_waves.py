"""1,000 clients that lose patience after 10 ms, then 1,000 that do not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headway.core.effects import DispatchBatch, Reason
from headway.core.events import RequestCancelled
from headway.core.ids import BatchKey, PartRef
from headway.runtime.codec import encode_call
from tests.chaos.waves import WavesFailed, from_recording, waves

pytestmark = pytest.mark.e2e


def test_who_lost_patience_costs_those_that_come_after_nothing(tmp_path: Path) -> None:
    found = asyncio.run(waves(tmp_path, 1000, 0.01))
    print(found)
    assert found.cancelled > 0, "nobody lost patience while he waited: nothing was tried"


def test_the_waves_notice_that_who_went_away_is_still_computed(tmp_path: Path) -> None:
    with pytest.raises(WavesFailed) as noticed:
        asyncio.run(waves(tmp_path, 100, 0.01, "who_went_away_is_still_computed"))
    # The bug makes the core decide otherwise, or contradict itself, which ends the server: the replay says which.
    assert "the core decided otherwise" in str(noticed.value) or "the core had raised" in str(noticed.value)


def test_a_recording_tells_who_was_run_after_he_had_gone_away(tmp_path: Path) -> None:
    def dispatch(*requests: int) -> DispatchBatch:
        key = BatchKey("tiny", 1, "")
        return DispatchBatch(1, requests[0], key, tuple(PartRef(number, 0) for number in requests), Reason.IDLE)

    lines = [
        b"{}",
        b"{}",
        encode_call(0, [], [dispatch(1)]),
        encode_call(1, [RequestCancelled(1), RequestCancelled(2), RequestCancelled(3)], []),
        encode_call(2, [], [dispatch(3, 4)]),
    ]
    file = tmp_path / "trace"
    file.write_bytes(b"\n".join(lines))
    assert from_recording(file) == (2, 1, [3])

"""The state of a version as the gateway sees it, derived from its slots; nothing is latched but what it once was."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.ids import VersionId
from headway.core.units import Instant
from headway.runtime.slot import Slot
from headway.runtime.worker_process import State
from headway.wire.messages import ModelMeta, VersionStatus


def version_status(
    version: VersionId, slots: Sequence[Slot], meta: ModelMeta | None, draining: bool, now: Instant
) -> VersionStatus:
    """meta: None until a worker of it was ready once. retry_after: until one is expected to be ready;
    0: nobody can tell, or, where it has failed, never."""
    state = _state(slots, meta is not None, draining)
    reason, wait = "", 0
    if state not in ("ready", "draining"):
        reason = next((slot.last_cause for slot in slots if slot.last_cause), "")
        wait = min(filter(None, (slot.expected_wait(now) for slot in slots)), default=0)
    return VersionStatus(version.model, version.version, state, meta, reason, wait)


def _state(slots: Sequence[Slot], was_ready: bool, draining: bool) -> str:
    if draining:
        return "draining"
    if any(slot.worker.state is State.READY for slot in slots):
        return "ready"
    if slots and all(slot.is_out for slot in slots):
        return "failed"
    return "unavailable" if was_ready else "loading"

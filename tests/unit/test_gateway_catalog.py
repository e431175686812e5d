"""What is said of a version that is being restarted, as the time goes on."""

from __future__ import annotations

import pytest

from headway.core.units import SECOND, seconds
from headway.gateway.catalog import RETRY_AFTER, SOON, Version
from headway.gateway.errors import NotReady
from headway.wire.messages import VersionStatus
from tests.conformance.http_world import ADD, model


class Clock:
    now = seconds(100)

    def __call__(self) -> int:
        return self.now


def lost(wait: int, clock: Clock, fallback: str = "") -> Version:
    """Its worker was killed, and is expected back after so long."""
    entry = model("add", 1)
    version = Version(entry, entry.versions[0], clock)
    version.settings = type(version.settings)(fallback=fallback)
    version.update(VersionStatus("add", 1, "ready", ADD))
    version.update(VersionStatus("add", 1, "unavailable", ADD, "signal SIGKILL", wait))
    return version


def test_it_says_that_it_is_being_restarted_and_when_it_is_expected_back() -> None:
    error = lost(seconds(1.2), Clock()).not_ready()
    assert error.message == "model 'add' version 1 is being restarted, ready in about 1.2 s: signal SIGKILL"
    assert error.retry_after == seconds(1.2)


def test_what_is_left_of_the_wait_shrinks_with_the_time_that_has_passed() -> None:
    clock = Clock()
    version = lost(seconds(30), clock)
    clock.now += seconds(20)
    assert version.not_ready().retry_after == seconds(10)
    clock.now += seconds(20)
    assert version.not_ready().retry_after == RETRY_AFTER, "it takes longer than it should, nobody knows how long"
    assert version.not_ready().message == "model 'add' version 1 is being restarted: signal SIGKILL"


@pytest.mark.parametrize(("wait", "taken"), [(SOON, True), (SOON + 1, False)])
def test_requests_are_taken_for_a_version_that_is_soon_back(wait: int, taken: bool) -> None:
    version = lost(wait, Clock())
    if taken:
        assert version.require_ready() is ADD
    else:
        with pytest.raises(NotReady):
            version.require_ready()


def test_who_was_not_back_by_then_is_waited_for_a_while_longer_and_not_for_ever() -> None:
    clock = Clock()
    version = lost(SECOND, clock)
    clock.now += SECOND + SOON - 1
    assert version.require_ready() is ADD
    clock.now += 1
    with pytest.raises(NotReady):
        version.require_ready()


def test_where_there_is_a_fallback_nobody_waits() -> None:
    with pytest.raises(NotReady):
        lost(SECOND, Clock(), fallback="small").require_ready()


def test_a_version_that_was_given_up_for_now_is_worth_another_try_and_one_that_never_loads_is_not() -> None:
    version = lost(SECOND, Clock())
    version.update(VersionStatus("add", 1, "failed", ADD, "exit code 3", seconds(43)))
    error = version.not_ready()
    assert error.message == ("model 'add' version 1 is given up for now, and tried again in about 43 s: exit code 3")
    assert (error.code, error.retryable, error.retry_after) == ("model_not_ready", True, seconds(43))
    version.update(VersionStatus("add", 1, "failed", ADD, "load failed: no file"))
    assert (version.not_ready().code, version.not_ready().retryable) == ("model_failed", False)

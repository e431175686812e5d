"""What a worker found of batches becomes the scheduler's rule and the gateway's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headway.config.settings import Batching, ModelSettings
from headway.core.events import Event, VersionConfigured
from headway.core.ids import BatchKey, Capacity, Part, VersionId
from headway.core.units import ms
from headway.gateway.catalog import Catalog, CatalogModel, CatalogVersion
from headway.registry.placement import Place
from headway.registry.spec import VersionSpec
from headway.runtime.crew import LiveCrew
from headway.runtime.observer import NullObserver
from headway.runtime.worker_process import State
from headway.wire.messages import InputMeta, ModelMeta, Ready, VersionStatus
from headway.wire.safety import SafetyReport, class_of

V = VersionId("m", 1)
META = ModelMeta("fake", (InputMeta("ids", "INT64", (-1, -1), pad_axis=1),), ())
SETTINGS = ModelSettings(batching=Batching(max_batch_size=16, max_batch_tokens=64))


class Crew:
    """A crew without processes: workers get ready when a test says so."""

    def __init__(self) -> None:
        self.posted: list[Event] = []
        self.told: list[Any] = []
        spec = VersionSpec("m", 1, "/nowhere", "onnx", SETTINGS)
        self.versions = {V: spec}
        self.crew = LiveCrew(
            self.versions, {V: Place(1, "cpu", 1)}, self.posted.append, self.told.append, NullObserver(), lambda: 0
        )
        slot = SimpleNamespace(worker=SimpleNamespace(state=State.READY), given_up=False, last_cause="")
        self.crew.join(SimpleNamespace(slots={V: [slot]}), SimpleNamespace(unpadded={}))  # type: ignore[arg-type]

    def ready(self, worker: int, report: SafetyReport, meta: ModelMeta = META) -> None:
        ready = Ready(worker, meta, Capacity(1), [], report)
        self.crew.worker_changed(SimpleNamespace(id=worker, version=V, state=State.READY, ready=ready, cause=""))  # type: ignore[arg-type]

    @property
    def policy(self) -> Any:
        return [event for event in self.posted if isinstance(event, VersionConfigured)][-1].policy

    @property
    def meta(self) -> ModelMeta:
        meta = self.told[-1].meta
        assert isinstance(meta, ModelMeta)
        return meta


def test_a_version_whose_answers_depend_on_company_is_served_row_by_row():
    crew = Crew()
    crew.ready(1, SafetyReport("unsafe", "unbatched"))
    assert (crew.policy.max_batch_size, crew.meta.max_batch_size) == (1, 1)


def test_a_version_that_padding_changes_is_served_with_equal_lengths():
    crew = Crew()
    crew.ready(1, SafetyReport("unsafe", "equal_lengths"))
    assert (crew.policy.equal_lengths, crew.policy.max_batch_size) == (True, 16)


def test_rows_run_end_to_end_count_by_their_tokens_but_not_at_fixed_sizes():
    unpadded = msgspec.structs.replace(META, unpadded=True)
    crew = Crew()
    crew.ready(1, SafetyReport("safe", "batched"), unpadded)
    assert crew.policy.unpadded
    crew.ready(2, SafetyReport("safe", "equal_lengths", length_classes=(16, 32)), unpadded)
    assert not crew.policy.unpadded


def test_a_safe_version_is_served_as_configured_and_nothing_is_posted_for_it():
    crew = Crew()
    crew.ready(1, SafetyReport("safe", "batched"))
    assert not any(isinstance(event, VersionConfigured) for event in crew.posted)


@pytest.mark.parametrize("order", [("unbatched", "batched"), ("batched", "unbatched"), ("unbatched", "equal_lengths")])
def test_of_what_several_workers_find_the_strictest_counts(order: tuple[str, str]):
    crew = Crew()
    for worker, mode in enumerate(order):
        crew.ready(worker, SafetyReport("unsafe", mode))
    assert (crew.policy.max_batch_size, crew.meta.max_batch_size, crew.crew.safety[V].mode) == (1, 1, "unbatched")


def test_at_fixed_sizes_the_scheduler_hears_of_the_length_that_is_run_and_the_gateway_cuts_by_it():
    crew = Crew()
    crew.ready(1, SafetyReport("safe", "equal_lengths", length_classes=(16, 32)))
    key = BatchKey("m", 1, "s")
    assert crew.crew.parts_of(key, [Part(1, 3), Part(2, 16), Part(1, 17)]) == (Part(1, 16), Part(2, 16), Part(1, 32))
    catalog = Catalog([CatalogModel("m", (CatalogVersion(1, "/nowhere"),), SETTINGS)])
    catalog.update(VersionStatus("m", 1, "ready", crew.meta))
    version = catalog.version("m", None)
    assert [version.max_part_rows(length) for length in (3, 16, 17)] == [4, 4, 2]


def test_other_versions_lengths_are_told_as_they_are():
    crew = Crew()
    assert crew.crew.parts_of(BatchKey("m", 1, "s"), [Part(1, 3)]) == (Part(1, 3),)
    assert class_of(99, (16, 32)) == 99


def test_other_settings_hold_at_once_within_what_was_found_and_the_core_hears_only_of_what_differs():
    crew = Crew()
    crew.ready(1, SafetyReport("unsafe", "equal_lengths"), msgspec.structs.replace(META, max_batch_size=8))
    posted = len(crew.posted)
    crew.crew.aim({})
    assert len(crew.posted) == posted
    hasty = msgspec.structs.replace(SETTINGS, batching=Batching(max_batch_size=4, max_queued_requests=3))
    crew.versions[V] = msgspec.structs.replace(crew.versions[V], settings=hasty)
    crew.crew.aim({V: 20})
    assert len(crew.posted) == posted + 1
    policy = crew.policy
    assert (policy.max_batch_size, policy.max_queued_requests, policy.slo) == (4, 3, ms(20))
    assert policy.equal_lengths
    crew.versions[V] = msgspec.structs.replace(crew.versions[V], settings=SETTINGS)
    crew.crew.aim({V: 20})
    assert (crew.policy.max_batch_size, crew.policy.equal_lengths, crew.policy.slo) == (8, True, ms(20))

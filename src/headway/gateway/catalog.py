"""Which models are configured, and what state their versions are in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from headway.config.settings import ModelSettings
from headway.core.ids import BatchKey, VersionId
from headway.core.units import SECOND
from headway.gateway.errors import GivenUp, NotReady, UnknownModel
from headway.wire.messages import InputMeta, ModelMeta, VersionStatus
from headway.wire.safety import class_of

SOON = 5 * SECOND
"""A version that is expected back within this time is waited for."""
RETRY_AFTER = SECOND
"""Said of a version that is not ready when the runtime does not say."""
STALLED = "stalled"
"""Said of a version that has workers which are ready, and none that gets anywhere."""
MAX_KEYS = 4096
"""Batch keys kept per version; beyond that they are made anew."""


Stalls: TypeAlias = Callable[[], Mapping[VersionId, str]]
"""Versions that are stalled now -> why."""


class CatalogVersion(msgspec.Struct, frozen=True):
    """path: the version's folder."""

    version: int
    path: str


class CatalogModel(msgspec.Struct, frozen=True):
    """default_version: 0 = the highest there is."""

    name: str
    versions: tuple[CatalogVersion, ...]
    settings: ModelSettings = ModelSettings()
    default_version: int = 0


class Version:
    """One version: its state, and what the gateway derives from its declaration once instead of per request."""

    def __init__(self, model: CatalogModel, entry: CatalogVersion, now: Callable[[], int] = time.monotonic_ns) -> None:
        self.model = model.name
        self.number = entry.version
        self.id = VersionId(model.name, entry.version)
        self.number_text = str(entry.version)
        self.path = entry.path
        self.settings = model.settings
        self.state = "loading"
        self.reason = ""
        self._now = now
        self._back_at = 0
        """When it is expected to be ready; 0: nobody said."""
        self.meta: ModelMeta | None = None
        self.inputs: dict[str, InputMeta] = {}
        self.output_names: tuple[str, ...] = ()
        self.per_row = frozenset(model.settings.per_row_parameters)
        self.stream_key = BatchKey(self.model, self.number, "stream")
        self._keys: dict[str, BatchKey] = {}
        self._most_rows: dict[int, int] = {}
        """By length, as far as it was asked for."""

    @property
    def ready(self) -> bool:
        return self.state == "ready" and self.meta is not None

    def update(self, status: VersionStatus) -> None:
        self.state, self.reason = status.state, status.reason
        self._back_at = self._now() + status.retry_after if status.retry_after else 0
        if status.meta is not None and status.meta != self.meta:
            self.meta = status.meta
            self._most_rows.clear()
            self.inputs = {meta.name: meta for meta in status.meta.inputs}
            self.output_names = tuple(meta.name for meta in status.meta.outputs)
            self.per_row = frozenset(self.settings.per_row_parameters) | frozenset(status.meta.per_row_parameters)

    def declared(self) -> ModelMeta:
        """Raises NotReady for a version that has never been loaded."""
        if self.meta is None:
            raise self.not_ready()
        return self.meta

    def require_ready(self) -> ModelMeta:
        """Or about to be again. Raises NotReady."""
        if self.meta is None or not (self.state == "ready" or self._is_soon_back):
            raise self.not_ready()
        return self.meta

    @property
    def _is_soon_back(self) -> bool:
        """It is being restarted, and whoever asks may as well wait for that, in the scheduler's queue like anybody."""
        if self.state != "unavailable" or self.settings.fallback or not self._back_at:
            return False
        return -SOON < self._back_at - self._now() <= SOON  # a start may take longer than the last one did

    def not_ready(self) -> NotReady:
        reason = f": {self.reason}" if self.reason else ""
        name = f"model {self.model!r} version {self.number}"
        if self.state == "failed" and not self._back_at:
            return GivenUp(f"{name} has failed and is not tried again{reason}", param="model")
        left = max(0, self._back_at - self._now()) if self._back_at else 0
        state = self.state
        if state == "unavailable":
            state = "being restarted" + (f", ready in about {left / SECOND:.2g} s" if left else "")
        elif state == "failed":
            state = "given up for now, and tried again" + (
                f" in about {left / SECOND:.2g} s" if left else " from time to time"
            )
        return NotReady(f"{name} is {state}{reason}", param="model", retry_after=left or RETRY_AFTER)

    def key(self, signature: str) -> BatchKey:
        """The same object for the same signature, as far as the cache reaches."""
        key = self._keys.get(signature)
        if key is None:
            if len(self._keys) >= MAX_KEYS:
                self._keys.clear()
            key = self._keys[signature] = BatchKey(self.model, self.number, signature)
        return key

    def max_part_rows(self, length: int) -> int:
        """Rows that one batch may hold at this length (>= 1)."""
        most = self._most_rows.get(length)
        if most is None:
            if len(self._most_rows) >= MAX_KEYS:
                self._most_rows.clear()
            most = self._most_rows[length] = self._rows_at(length)
        return most

    def _rows_at(self, length: int) -> int:
        batching = self.settings.batching
        rows = batching.max_batch_size
        if self.meta is not None:
            rows = min(rows, self.meta.max_batch_size or rows)
            length = class_of(length, self.meta.length_classes)
            if self.meta.max_batch_tokens:
                rows = min(rows, self.meta.max_batch_tokens // length)
        if batching.max_batch_tokens:
            rows = min(rows, batching.max_batch_tokens // length)
        return max(rows, 1)


class Standing(NamedTuple):
    """How ready a version is, as probes are told: where its worker is ready and gets nowhere, it is not."""

    version: Version
    ready: bool
    state: str
    reason: str


class Model:
    def __init__(self, entry: CatalogModel, now: Callable[[], int] = time.monotonic_ns) -> None:
        self.name = entry.name
        self.settings = entry.settings
        self.versions = {v.version: Version(entry, v, now) for v in sorted(entry.versions, key=lambda v: v.version)}
        self.default = entry.default_version or max(self.versions)


class Catalog:
    """Every lookup of a name goes through here, so an unknown one is the same 404 on every route.

    now: monotonic nanoseconds.  stalls: asked at each probe.
    """

    def __init__(
        self, models: Iterable[CatalogModel], now: Callable[[], int] = time.monotonic_ns, stalls: Stalls = dict
    ) -> None:
        self.models = {entry.name: Model(entry, now) for entry in models if entry.versions}
        self._stalls = stalls

    def model(self, name: str) -> Model:
        model = self.models.get(name)
        if model is None:
            raise UnknownModel(f"no model {name!r} here; there are: {_list(self.models)}", param="model")
        return model

    def version(self, name: str, number: str | None) -> Version:
        """number: as in the path; None = the default version."""
        model = self.model(name)
        if number is None:
            wanted = model.default
        else:
            wanted = int(number) if number.isascii() and number.isdigit() and len(number) < 19 else -1
        version = model.versions.get(wanted)
        if version is None:
            known = _list(str(v) for v in model.versions)
            raise UnknownModel(f"model {name!r} has no version {number or wanted}; it has: {known}", param="model")
        return version

    def update(self, status: VersionStatus) -> None:
        """A version that is not configured (any more) is of no interest."""
        model = self.models.get(status.model)
        if model is not None and status.version in model.versions:
            model.versions[status.version].update(status)

    def configure(self, models: Mapping[str, ModelSettings]) -> None:
        """Other settings for models that there are."""
        for name, settings in models.items():
            model = self.models[name]
            model.settings = settings
            for version in model.versions.values():
                version.settings = settings

    def all_versions(self) -> Iterator[Version]:
        for model in self.models.values():
            yield from model.versions.values()

    @property
    def ready(self) -> bool:
        """Every configured version is. A server without models can answer nothing and is not ready either."""
        return bool(self.models) and all(standing.ready for standing in self.standings())

    def standings(self) -> list[Standing]:
        """Of every version that is configured, now."""
        stalled = self._stalls()
        return [_standing(version, stalled) for version in self.all_versions()]

    def standing(self, version: Version) -> Standing:
        return _standing(version, self._stalls())


def _standing(version: Version, stalled: Mapping[VersionId, str]) -> Standing:
    """Requests for one that is stalled go on to the scheduler, which knows whom to refuse and whom to let try."""
    why = stalled.get(version.id, "") if version.ready else ""
    if why:
        return Standing(version, False, STALLED, why)
    return Standing(version, version.ready, version.state, version.reason)


def _list(names: Iterable[str], most: int = 20) -> str:
    known = list(names)
    return ", ".join(known[:most]) + (", ..." if len(known) > most else "") if known else "none"

"""One version explained: what is in force and who decided it, what was learned, what waits. All of it JSON values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from headway.config.settings import Settings
from headway.core.ids import VersionId
from headway.core.policy import Style
from headway.core.units import MILLISECOND, NEVER, Instant
from headway.core.views import VersionDetail
from headway.registry.placement import available_cores, lay_out
from headway.registry.spec import VersionSpec, default_versions
from headway.telemetry import engine_explain, learned, tenants
from headway.telemetry.counters import Counters
from headway.telemetry.failure_explain import explained
from headway.telemetry.failure_families import poisoned
from headway.telemetry.histogram import Histogram
from headway.telemetry.in_force import Deciders, values
from headway.wire.safety import SafetyReport


class Explainer:
    """deciders: by model.  details: of a version from the core at an instant, None where the core does not know it.
    safety: what was found of each version that has loaded."""

    def __init__(
        self,
        settings: Settings,
        specs: Sequence[VersionSpec],
        deciders: Mapping[str, Deciders],
        counters: Counters,
        details: Callable[[VersionId, Instant], VersionDetail | None],
        clock: Callable[[], Instant],
        safety: Callable[[], Mapping[VersionId, SafetyReport]] = dict,
    ) -> None:
        places = lay_out(specs, available_cores(settings.server.threads)).places
        self._settings = settings
        self._specs = {
            VersionId(spec.model, spec.version): (spec, place.threads)
            for spec, place in zip(specs, places, strict=True)
        }
        self._defaults = default_versions(specs)
        self._deciders = deciders
        self._counters = counters
        self._details = details
        self._clock = clock
        self._safety = safety

    def __call__(self, model: str, version: int) -> dict[str, Any] | None:
        """None while the core does not know the version. Raises KeyError for one that is not configured."""
        id = VersionId(model, version)
        spec, threads = self._specs[id]
        now = self._clock()
        detail = self._details(id, now)
        counts = self._counters.versions.get(id)
        if detail is None or counts is None:
            return None
        report = self._safety().get(id)
        in_force = values(spec, threads, detail, self._settings, self._deciders[model], report or SafetyReport())
        batched = detail.policy.style is Style.BATCH
        return {
            "model": model,
            "version": version,
            "default": self._defaults[model] == version,
            "style": detail.policy.style.value,
            "values": [msgspec.to_builtins(value) for value in in_force],
            "cost": learned.cost(detail.cost, detail.policy, detail.view.probes) if batched else None,
            "batch_safety": msgspec.json.decode(msgspec.json.encode(report)) if batched and report else None,
            "slo": self._budget(spec, detail, counts.phases.outside()) if batched else None,
            "rates": {
                "arrived_per_s": _rounded(detail.arrived_per_second),
                "completed_per_s": _rounded(detail.completed_per_second),
            },
            "hand_over_ms": None if detail.overhead is None else learned.ms(detail.overhead),
            "workers": [
                {"worker": worker, "state": state.value, "pace": _rounded(detail.paces.get(worker))}
                for worker, state in detail.view.workers.items()
            ],
            "waiting": _waiting(detail, now),
            "language": engine_explain.explained(detail.engines, self._counters.generations.versions.get(id)),
            "failures": explained(detail.view.failures, self._counters.failures.of(id), poisoned(counts), now),
            "device": _device(detail),
            "tenants": tenants.tenants(detail.tenants, detail.policy, model, now),
            "forecast": tenants.forecast(detail.forecast),
            "phases": learned.phases(counts.phases),
        }

    def _budget(self, spec: VersionSpec, detail: VersionDetail, outside: Histogram) -> dict[str, Any] | None:
        slo = detail.policy.slo / MILLISECOND
        if not slo:
            return None
        return {
            **learned.budget(slo, detail.cost, detail.policy, outside),
            "linger": None if detail.linger is None else learned.linger(detail.linger, slo),
        }


def _waiting(detail: VersionDetail, now: Instant) -> dict[str, Any]:
    view = detail.view
    return {
        "requests": view.waiting_requests,
        "parts": view.waiting_parts,
        "rows": view.waiting_rows,
        "oldest_ms": 0.0 if view.oldest == NEVER else learned.ms(max(0, now - view.oldest)),
        "clears_in_ms": learned.ms(view.clears_in) if view.waiting_parts else 0.0,
        "running_batches": view.running_batches,
        "running_sequences": view.running_sequences,
    }


def _device(detail: VersionDetail) -> dict[str, Any]:
    """What its workers share.  cores: 0 = no limit.  trouble: why it is lost, "" = it is not.
    shared_with: the other versions on it."""
    device = detail.device
    return {
        "name": device.name,
        "cores": device.cores,
        "in_use": device.in_use,
        "takes": detail.takes,
        "trouble": device.trouble,
        "shared_with": [str(version) for version in device.versions if version != detail.view.version],
    }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 3)

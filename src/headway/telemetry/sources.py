"""What is asked for at scrape rather than counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from headway.core.ids import VersionId
from headway.core.tenant_views import TenantRoom, TenantShare
from headway.core.views import DeviceView, VersionView
from headway.wire.safety import SafetyReport

Views: TypeAlias = Callable[[], Iterable[VersionView]]
"""The core's own: Scheduler.views."""

Devices: TypeAlias = Callable[[], Iterable[DeviceView]]
"""The core's own: views.devices."""

TenantShares: TypeAlias = Callable[[], Iterable[TenantShare]]
"""The core's own: tenant_views.shares."""

TenantRooms: TypeAlias = Callable[[], Iterable[TenantRoom]]
"""The core's own: tenant_views.rooms."""

Stalls: TypeAlias = Callable[[], Mapping[VersionId, str]]
"""Versions whose workers get nowhere, and why: failure_views.stalls."""

Reports: TypeAlias = Callable[[], Mapping[VersionId, SafetyReport]]
"""What was found of batches in each version that has loaded: Runtime.safety."""

Replies: TypeAlias = Callable[[], dict[int, int]]
"""HTTP status -> replies begun with it."""

Gauges: TypeAlias = Callable[[], dict[str, float]]
"""Name below `headway_` with its unit (`recorder_dropped_calls_total`) -> value."""

Fallbacks: TypeAlias = Callable[[], dict[tuple[str, str], int]]
"""(Model that was asked, model that answered in its place) -> replies."""

Keys: TypeAlias = Callable[[], dict[str, int]]
"""What became of idempotency keys -> how often, since the start."""

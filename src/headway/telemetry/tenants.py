"""Tenants of one version explained, as JSON values: what each is owed and got, what it may, and what is foreseen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.core.ids import Tenant
from headway.core.policy import BatchPolicy
from headway.core.tenancy import RateLimit
from headway.core.tenant_views import ForecastDetail, LimitUse, Neglect, TenantDetail
from headway.core.units import MILLISECOND, NEVER, SECOND, Instant
from headway.telemetry.tenant_families import shown


def tenants(details: Sequence[TenantDetail], policy: BatchPolicy, model: str, now: Instant) -> list[dict[str, Any]]:
    """The last one is `other`: all that are not configured, whose weight and limits hold for each.  policy: of the
    version.

    received_s, owed_s: of the device, seconds x cores.  In `last` of the last span_s, besides since the start.
    lead_s: by how much more than who is next it was served, per unit of weight; null where nothing of it waits.
    foreseen_ms: until one more usual request of it would be answered; 0 = at once, null = nobody asks.
    """
    return [
        {
            "tenant": shown(detail.tenant),
            "weight": detail.policy.weight,
            "slo_ms": detail.policy.slo(model, policy.slo) / MILLISECOND,
            "received_s": seconds(detail.share.received),
            "owed_s": seconds(detail.share.owed),
            "last": {
                "span_s": seconds(detail.lately.span),
                "received_s": seconds(detail.lately.received),
                "owed_s": seconds(detail.lately.owed),
            },
            "waiting_requests": detail.room.waiting,
            "waiting_parts_on_device": detail.waiting_parts,
            "max_queued_requests": detail.policy.max_queued_requests,
            "borrowed": detail.room.borrowed,
            "reclaimed": detail.room.lost,
            "regained": detail.room.regained,
            "lead_s": None if detail.lead is None else seconds(detail.lead),
            "limits": [limit(use) for use in detail.limits],
            "starving": detail.share.starving,
            "starving_for_s": 0.0 if detail.share.since == NEVER else seconds(now - detail.share.since),
            "starvations": detail.share.spells,
            "neglect": None if detail.neglect is None else neglect(detail.neglect),
            "foreseen_ms": None if detail.foreseen is None else round(detail.foreseen / MILLISECOND, 3),
        }
        for detail in details
    ]


def limit(use: LimitUse) -> dict[str, Any]:
    """left of each kind: what may come at once, now; null where that kind has no limit."""
    rule = use.limit
    return {
        "for": lengths(rule),
        "requests_per_second": rule.requests_per_second,
        "requests_left": round(use.requests, 2) if rule.requests_per_second else None,
        "tokens_per_second": rule.tokens_per_second,
        "tokens_left": round(use.tokens, 2) if rule.tokens_per_second else None,
        "concurrent": rule.concurrent,
        "open": use.open,
    }


def lengths(rule: RateLimit) -> str:
    """Of whom it is a limit, in words; "" = of all."""
    bounds = [f"longer than {rule.beyond}"] if rule.beyond else []
    return " and ".join([*bounds, *([f"up to {rule.up_to}"] if rule.up_to < NEVER else [])])


def neglect(found: Neglect) -> dict[str, Any]:
    return {
        "window_s": seconds(found.window),
        "received_s": seconds(found.received),
        "owed_s": seconds(found.owed),
        "running_parts": found.running,
        "has_worker": found.served,
        "ahead": name_of(found.ahead),
    }


def name_of(tenant: Tenant) -> Tenant | None:
    """None: nobody."""
    return tenant or None


def forecast(detail: ForecastDetail | None) -> dict[str, Any] | None:
    """What answers took beside what was foreseen at their arrival; None where nobody is refused by that."""
    if detail is None:
        return None
    return {
        "answers": detail.answers,
        "counts": detail.counts,
        "usual_ratio": round(detail.usual, 3),
        "margin_seconds": seconds(detail.margin),
    }


def seconds(nanoseconds: float) -> float:
    return round(nanoseconds / SECOND, 6)

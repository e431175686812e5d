"""What the operator says about tenants. Policies are values; `Tenancy` is the one in force."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headway.core.ids import Tenant
from headway.core.units import NEVER, Duration

STRANGERS: Tenant = ""
"""All tenants together that the operator never named: what is kept of each must not grow with their number."""


class RateLimit(NamedTuple):
    """For requests whose longest part is longer than `beyond` and at most `up_to`; together, over all versions.

    requests_per_second, tokens_per_second: on average; 0 = no limit. Of tokens a request takes rows x length.
    burst: seconds of it that may come at once.
    concurrent: requests without an outcome; 0 = no limit.
    """

    requests_per_second: float = 0.0
    tokens_per_second: float = 0.0
    burst: float = 1.0
    concurrent: int = 0
    beyond: int = 0
    up_to: int = NEVER

    def covers(self, length: int) -> bool:
        return self.beyond < length <= self.up_to


class TenantPolicy(NamedTuple):
    """weight: its share (> 0) beside the others' that want something at the same time.
    limits: all that cover a request hold for it.
    max_queued_requests: that may wait for one version; 0 = as many as there is room for.
    slos: model -> the latency that is aimed for, instead of the model's own; "" stands for every other model.
        0: none is, although the model is run by another tenant's.
    """

    weight: float = 1.0
    limits: tuple[RateLimit, ...] = ()
    max_queued_requests: int = 0
    slos: tuple[tuple[str, Duration], ...] = ()

    def slo(self, model: str, otherwise: Duration) -> Duration:
        """0: there is none.  otherwise: what the model is run by."""
        if not self.slos:
            return otherwise
        slos = dict(self.slos)
        return slos.get(model, slos.get("", otherwise))


class Tenancy:
    """The tenants' policies in force: those that are named, and what holds for everybody else, each by himself.
    known: who is named, or was once: what is kept of those goes on under their names."""

    __slots__ = ("known", "named", "others")

    def __init__(self) -> None:
        self.named: dict[Tenant, TenantPolicy] = {}
        self.others = TenantPolicy()
        self.known: dict[Tenant, None] = {}

    def govern(self, named: Iterable[tuple[Tenant, TenantPolicy]], others: TenantPolicy) -> None:
        self.named = dict(named)
        self.others = others
        self.known.update(dict.fromkeys(self.named))

    def label(self, tenant: Tenant) -> Tenant:
        """The name under which something of it is kept."""
        return tenant if tenant in self.known else STRANGERS

    def of(self, tenant: Tenant) -> TenantPolicy:
        return self.named.get(tenant, self.others)

    def weight(self, tenant: Tenant) -> float:
        return self.of(tenant).weight

"""Settings of tenants: what they are owed, what they may, and how they say who they are."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field

Count = Annotated[int, Meta(ge=0)]
Span = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(gt=0)]


class KeySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A key, as `headway keys new` prints it. The key itself, `hw_ID_SECRET`, is never written anywhere.

    id: what the key is looked up by; letters, digits and "-", in one key only.
    sha256: of the secret, 64 hexadecimal digits.
    """

    id: str = ""
    sha256: str = ""


Keys: TypeAlias = tuple[KeySettings, ...]


class LimitSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A limit of one tenant, over all models together; more gets a 429, `rate_limited`. All that cover a request hold.

    requests_per_second: on average; 0 = no limit.
    tokens_per_second: on average, rows x length as the model counts it; 0 = no limit.
    burst_s: seconds of either that may come at once.
    concurrent: requests without an answer; 0 = no limit.
    longer_than: it is for requests whose longest row is longer than so many tokens ...
    up_to: ... and at most so long; 0 = any.
    """

    requests_per_second: Span = 0
    tokens_per_second: Span = 0
    burst_s: Share = 1
    concurrent: Count = 0
    longer_than: Count = 0
    up_to: Count = 0


class TenantRules(Struct, frozen=True, forbid_unknown_fields=True):
    """
    weight: share of the device beside other tenants.
    limits: a list of tables, `[[tenants.NAME.limits]]`, each a limit of its own.
    max_queued_requests: that may wait for one version; 0 = as many as there is room for.
    classes: of priority that it may use, as in `scheduling.patience_ms`, from 0; [] = all. Others are refused (403);
        a request that names none gets the nearest to 1 that is allowed, of two the less urgent.
    models: that it may call and is shown; [] = all. Others are refused (403).
    default_deadline_ms: of a request that names none; 0 = `server.request_timeout_s`.
    default_ttft_ms: of language models: after so long a first token is worthless, to a request that does not say by
        `x-ttft-ms`; 0 = it never is.
    default_itl_ms: of language models: what tokens are to keep to between each other, to a request that does not say
        by `x-itl-ms`; 0 = what the model aims at.
    slo_ms: the latency that is aimed for, instead of the model's own `slo_ms`; 0 = the model's.
    slo: the same model by model, which goes before it: `{ minilm = 50 }`. A model's batches are made for the tightest
        of its own and all tenants'.
    """

    weight: Share = 1
    limits: tuple[LimitSettings, ...] = ()
    max_queued_requests: Count = 0
    classes: tuple[Count, ...] = ()
    models: tuple[str, ...] = ()
    default_deadline_ms: Span = 0
    default_ttft_ms: Span = 0
    default_itl_ms: Span = 0
    slo_ms: Span = 0
    slo: dict[str, Share] = field(default_factory=dict)


class TenantSettings(TenantRules, frozen=True, forbid_unknown_fields=True):
    """One table per tenant. What holds for all others, each by itself, is in `[other_tenants]`.

    keys: a list of tables, `[[tenants.NAME.keys]]`: whoever has one of them is this tenant. Once any tenant has a key,
        nobody gets in without one.
    """

    keys: Keys = ()


class OtherTenants(TenantRules, frozen=True, forbid_unknown_fields=True):
    """What holds for each tenant without a table of its own, among them `default`, whom requests belong to that name
    nobody."""

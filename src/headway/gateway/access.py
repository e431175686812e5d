"""Who a request is from, and what he may: from its key, from a header that is trusted, or `default`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headway.config.cross_tenants import keyed
from headway.config.settings import Settings
from headway.config.tenants import TenantRules
from headway.core.units import ms
from headway.gateway.errors import BadRequest, Forbidden, Unauthenticated
from headway.gateway.exchange import Request
from headway.gateway.keys import Keyring

DEFAULT_TENANT = "default"
MAX_TENANT = 64
CLASSES = (0, 1, 2)
"""That a request can ask for."""
USUAL_CLASS = 1
"""That a request gets which names none."""
NAMES_SHOWN = 20


class Caller(msgspec.Struct, frozen=True):
    """What a tenant may. models, classes: empty = all.  usual_class: of a request that names none.
    default_timeout: nanoseconds, of a request that names no deadline; None = as long as the server lets it.
    default_targets: of one that names none to a language model, as `options.read_targets` has them."""

    tenant: str = DEFAULT_TENANT
    models: frozenset[str] = frozenset()
    classes: frozenset[int] = frozenset()
    usual_class: int = USUAL_CLASS
    default_timeout: int | None = None
    default_targets: tuple[int, int] = (0, 0)

    def may_call(self, model: str) -> bool:
        return not self.models or model in self.models

    def check_model(self, model: str) -> None:
        """Raises Forbidden, in the same words for a model of somebody else and for one that does not exist."""
        if self.models and model not in self.models:
            raise Forbidden(f"this tenant may call {_list(sorted(self.models))}, not {model!r}", param="model")

    def check_class(self, priority: int) -> None:
        """Raises Forbidden."""
        if self.classes and priority not in self.classes:
            allowed = ", ".join(map(str, sorted(self.classes)))
            raise Forbidden(f"this tenant may use class {allowed} of priority, not class {priority}", param="priority")


class Access:
    """As the settings say; made anew when they change."""

    def __init__(self, settings: Settings) -> None:
        last = len(settings.scheduling.patience_ms) - 1
        self.keyed = keyed(settings)
        self._header = settings.tenant_header.lower().encode("latin-1")
        self._unknown = settings.unknown_tenants
        self._callers = {name: _caller(name, tenant, last) for name, tenant in settings.tenants.items()}
        self._other = _caller(DEFAULT_TENANT, settings.other_tenants, last)
        self._default = self._callers.get(DEFAULT_TENANT, self._other)
        owned = [(key, self._callers[name]) for name, tenant in settings.tenants.items() for key in tenant.keys]
        self._keys: Keyring[Caller] = Keyring(owned)

    def __call__(self, request: Request) -> Caller:
        """Raises Unauthenticated, Forbidden, BadRequest."""
        if self.keyed:
            caller = self._keys.owner(request.headers)
        elif self._header:
            caller = self._named(request.headers.get(self._header))
        else:
            caller = self._default
        request.tenant = caller.tenant
        return caller

    def check_key(self, headers: dict[bytes, bytes]) -> None:
        """Raises Unauthenticated where keys are wanted and this is none."""
        if self.keyed:
            self._keys.owner(headers)

    def if_known(self, request: Request) -> Caller | None:
        """For routes that are open: None = somebody without a right key."""
        try:
            return self(request)
        except (Unauthenticated, Forbidden, BadRequest):
            return None

    def _named(self, header: bytes | None) -> Caller:
        if header and len(header) > MAX_TENANT:
            raise BadRequest(f"the tenant's name may have {MAX_TENANT} bytes, this one has {len(header)}")
        name = header.decode("latin-1") if header else DEFAULT_TENANT
        caller = self._callers.get(name)
        if caller is not None:
            return caller
        if self._unknown == "refuse" and not header:
            raise Forbidden(f"the header {self._header.decode('latin-1')} is missing, which says whose the request is")
        if self._unknown == "refuse":
            raise Forbidden(f"no tenant {name!r} here")
        if self._unknown == "default" or name == DEFAULT_TENANT:
            return self._default
        return msgspec.structs.replace(self._other, tenant=name)


def _caller(name: str, tenant: TenantRules, last: int) -> Caller:
    """last: class of priority that there is; those beyond count as it."""
    classes = frozenset(priority for priority in CLASSES if min(priority, last) in tenant.classes)
    return Caller(
        tenant=name,
        models=frozenset(tenant.models),
        classes=classes,
        usual_class=min(classes, key=_distance, default=USUAL_CLASS),
        default_timeout=ms(tenant.default_deadline_ms) if tenant.default_deadline_ms else None,
        default_targets=(ms(tenant.default_ttft_ms), ms(tenant.default_itl_ms)),
    )


def _distance(priority: int) -> tuple[int, int]:
    """From the usual class; of two that are equally near, the less urgent first."""
    return abs(priority - USUAL_CLASS), -priority


def _list(names: Iterable[str]) -> str:
    known = list(names)
    return ", ".join(known[:NAMES_SHOWN]) + (", ..." if len(known) > NAMES_SHOWN else "")


OPEN = Access(Settings())
"""Everybody is `default`, and may do everything."""

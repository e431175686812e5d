"""Where settings name a model: whether there is one, and whether it can do what is asked of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headway.config.check import join
from headway.config.cross_tenants import Found
from headway.config.errors import Problem, nearest
from headway.config.settings import ModelSettings, Settings
from headway.config.tenants import TenantRules
from headway.registry.spec import VersionSpec


def wrong_references(settings: Settings, specs: Iterable[VersionSpec], file: str) -> list[Problem]:
    """specs: all there are.  file: the server's; a fallback may be set in model.toml as well, its place says whose."""
    models = {spec.model: spec.settings for spec in specs}
    found = [*of_tenants(settings, list(models)), *of_fallbacks(models)]
    return [Problem(file, place, text) for place, text in found]


def of_tenants(settings: Settings, models: list[str]) -> Iterator[Found]:
    tables: dict[str, TenantRules] = {join("tenants", name): tenant for name, tenant in settings.tenants.items()}
    for place, tenant in {**tables, "other_tenants": settings.other_tenants}.items():
        for number, model in enumerate(tenant.models):
            if model not in models:
                yield f"{place}.models[{number}]", no_model(model, models)
        for model in tenant.slo:
            if model not in models:
                yield join(f"{place}.slo", model), no_model(model, models)


def of_fallbacks(models: dict[str, ModelSettings]) -> Iterator[Found]:
    for name, settings in models.items():
        place = join("models", name) + ".fallback"
        fallback = settings.fallback
        if not fallback:
            continue
        if fallback not in models:
            yield place, no_model(fallback, list(models))
        elif name in (ring := chain(name, models)):
            yield place, f"expected a model that does not lead back here, got {' -> '.join([name, *ring])}"
        else:
            yield from ((place, text) for text in unlike(settings, fallback, models[fallback]))


def chain(name: str, models: dict[str, ModelSettings]) -> list[str]:
    """The fallbacks of a model, one after the other, until there is none or one comes again."""
    seen: list[str] = []
    at = models[name].fallback
    while at in models and at not in seen:
        seen.append(at)
        at = models[at].fallback
    return seen


def unlike(model: ModelSettings, name: str, fallback: ModelSettings) -> Iterator[str]:
    """What can be known before either is loaded. What does not fit later is refused as if there were no fallback."""
    if model.embeddings and not fallback.embeddings:
        yield f"expected a model that makes embeddings too, {name!r} has no [embeddings]"
    ours, theirs = model.torch.inputs, fallback.torch.inputs
    for tensor, (datatype, shape) in ours.items() if theirs else ():
        if tensor not in theirs:
            yield f"expected a model with the same inputs, {name!r} has no {tensor!r}"
        elif theirs[tensor] != (datatype, shape):
            yield (
                f"expected a model with the same inputs, {tensor!r} is {datatype} {list(shape)} here and "
                f"{theirs[tensor][0]} {list(theirs[tensor][1])} in {name!r}"
            )
    for tensor in theirs if ours else ():
        if tensor not in ours:
            yield f"expected a model with the same inputs, {name!r} needs {tensor!r} too"


def no_model(name: str, models: list[str]) -> str:
    close = nearest(name, models)
    hint = f"did you mean {close!r}?" if close else f"there are: {', '.join(models) or 'none'}"
    return f"no model {name!r} here; {hint}"

"""Tenants and their weights at the command line."""

from __future__ import annotations

import click


class TenantShares(click.ParamType[tuple[tuple[str, float], ...]]):
    name = "name:weight,..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[str, float], ...]:
        if isinstance(value, tuple):
            return value
        shares: dict[str, float] = {}
        for entry in str(value).split(","):
            name, _, weight = entry.partition(":")
            if name.strip() in shares:
                self.fail(f"{name.strip()!r} is named twice", param, ctx)
            try:
                shares[name.strip()] = float(weight or 1)
            except ValueError:
                self.fail(f"{entry!r}: expected NAME:WEIGHT, as in 'a:1,b:2.5'", param, ctx)
            if not name.strip() or shares[name.strip()] <= 0:
                self.fail(f"{entry!r}: expected a name and a weight above 0", param, ctx)
        return tuple(shares.items())

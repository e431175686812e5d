"""`headway keys`, and what is warned of because hardly anybody means it."""

from __future__ import annotations

import tomllib
from hashlib import sha256

import pytest
from click.testing import CliRunner

from headway.cli.common import open_doors
from headway.cli.keys import keys
from headway.config.settings import Server, Settings
from headway.config.tenants import TenantSettings
from headway.gateway.keys import Keyring, new_key

KEY = new_key("k1").settings


def printed(*arguments: str) -> tuple[str, dict[str, object]]:
    """The key, and the rest read as TOML."""
    ran = CliRunner().invoke(keys, ["new", *arguments])
    assert ran.exit_code == 0, ran.output
    key, _, rest = ran.output.partition("\n")
    return key, tomllib.loads(rest)


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (["acme"], ["tenants", "acme", "keys"]),
        (['a b"c'], ["tenants", 'a b"c', "keys"]),
        (["--admin"], ["server", "admin_keys"]),
        (["acme", "--id", "blue"], ["tenants", "acme", "keys"]),
    ],
)
def test_a_new_key_is_its_first_line_and_the_rest_lets_it_in(arguments: list[str], path: list[str]) -> None:
    key, told = printed(*arguments)
    at: object = told
    for name in path:
        assert isinstance(at, dict)
        at = at[name]
    assert isinstance(at, list)
    (entry,) = at
    id, secret = key.removeprefix("hw_").split("_", 1)
    assert entry == {"id": id, "sha256": sha256(secret.encode()).hexdigest()}
    assert id == "blue" or "--id" not in arguments


@pytest.mark.parametrize(
    "arguments", [[], ["acme", "--admin"], ["acme", "--id", "a_b"], ["acme", "--id", ""], ["x" * 65], [""]]
)
def test_what_makes_no_key_is_told(arguments: list[str]) -> None:
    ran = CliRunner().invoke(keys, ["new", *arguments])
    if arguments == ["acme", "--id", ""]:
        assert ran.exit_code == 0  # one is made up
    else:
        assert ran.exit_code == 2 and "hw_" not in ran.output


def test_two_keys_of_a_tenant_are_in_force_so_that_they_can_be_exchanged() -> None:
    old, new = new_key(), new_key()
    ring = Keyring([(old.settings, "acme"), (new.settings, "acme")])
    assert [ring.owner({b"x-api-key": key.text.encode()}) for key in (old, new)] == ["acme", "acme"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(), []),
        (Settings(tenants={"a": TenantSettings(keys=(KEY,))}), []),
        (Settings(server=Server(require_keys=True)), ["no tenant has a key"]),
        (Settings(server=Server(admin_port=1)), []),
        (Settings(server=Server(admin_port=1, admin_host="0.0.0.0")), ["no server.admin_keys"]),
        (Settings(server=Server(admin_port=1, admin_host="0.0.0.0", admin_keys=(KEY,))), []),
        (Settings(server=Server(host="0.0.0.0"), tenants={"a": TenantSettings(keys=(KEY,))}), ["in the clear"]),
        (Settings(server=Server(host="0.0.0.0", ssl_certfile="c"), tenants={"a": TenantSettings(keys=(KEY,))}), []),
        (
            Settings(
                server=Server(host="0.0.0.0", trusted_proxies=("::1",)), tenants={"a": TenantSettings(keys=(KEY,))}
            ),
            [],
        ),
    ],
)
def test_doors_that_are_open_or_shut_by_mistake_are_warned_of(settings: Settings, words: list[str]) -> None:
    warnings = list(open_doors(settings))
    assert len(warnings) == len(words) and all(word in text for word, text in zip(words, warnings, strict=True))

"""What the server prints when it is ready."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from headway.cli.announce import Answer, Entrance, callable_with_a_key, client_address, lines, unix_address
from headway.config.settings import Embeddings, ModelSettings, Settings
from headway.config.tenants import KeySettings, TenantSettings
from headway.registry.spec import VersionSpec
from headway.wire.messages import InputMeta, ModelMeta, VersionStatus

X = InputMeta("x", "FP32", (-1, -1))
HOME = "http://127.0.0.1:8000"


def answer(
    model: str,
    version: int = 1,
    inputs: tuple[InputMeta, ...] = (X,),
    state: str = "ready",
    reason: str = "",
    streaming: bool = False,
    embeddings: Embeddings | None = None,
) -> Answer:
    spec = VersionSpec(model, version, f"/m/{model}", "onnx", ModelSettings(embeddings=embeddings))
    meta = ModelMeta("onnxruntime_onnx", inputs, (), streaming=streaming)
    return Answer(spec, VersionStatus(model, version, state, meta if state == "ready" else None, reason))


def commands(*answers: Answer) -> list[list[str]]:
    printed = list(lines(Entrance(HOME), answers))
    return [shlex.split(line) for line in printed[printed.index("Try:") + 1 :]]


def test_the_address_comes_first_so_that_a_program_can_read_it() -> None:
    assert next(lines(Entrance(HOME), [])) == f"headway is serving on {HOME}"


def test_each_version_says_whether_it_is_ready_and_why_not() -> None:
    printed = list(lines(Entrance(HOME), [answer("a"), answer("b", state="loading", reason="no such weights")]))
    assert printed[1:3] == ["  a/1 is ready", "  b/1 is not ready (loading): no such weights"]


def test_metrics_are_always_shown() -> None:
    assert commands() == [["curl", f"{HOME}/metrics"]]


def test_a_model_gets_a_request_that_fits_its_inputs() -> None:
    inputs = (X, InputMeta("t", "BYTES", (-1, 2)), InputMeta("b", "BOOL", (-1,)), InputMeta("o", "FP32", (-1,), True))
    curl = commands(answer("a", inputs=inputs))[0]
    assert curl[1] == f"{HOME}/v2/models/a/infer"
    assert json.loads(curl[-1])["inputs"] == [
        {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 1, 1]},
        {"name": "t", "datatype": "BYTES", "shape": [1, 2], "data": ["text", "text"]},
        {"name": "b", "datatype": "BOOL", "shape": [1], "data": [True]},
    ]


def test_a_model_whose_inputs_are_too_large_to_paste_gets_no_request() -> None:
    image = InputMeta("image", "FP32", (-1, 3, 224, 224))
    assert len(commands(answer("a", inputs=(image,)))) == 1


def test_each_kind_of_model_gets_one_request() -> None:
    found = commands(
        answer("a"),
        answer("b"),
        answer("encoder", embeddings=Embeddings()),
        answer("toy", streaming=True, inputs=()),
        answer("broken", state="failed", reason="lost", embeddings=Embeddings()),
    )
    assert [next(word for word in curl if word.startswith(HOME)).removeprefix(HOME) for curl in found] == [
        "/v1/embeddings",
        "/v2/models/toy/generate_stream",
        "/v2/models/a/infer",
        "/metrics",
    ]


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("10.0.0.7", "http://10.0.0.7:80"),
    ],
)
def test_the_address_is_one_that_a_client_on_this_machine_can_use(host: str, address: str) -> None:
    assert client_address(host, 80) == address


@pytest.mark.parametrize(
    ("lists", "asked"),
    [
        ({"one": ("b",), "two": ()}, {"b"}),
        ({"one": ("a", "b"), "two": ("b", "c")}, {"b"}),
        ({"one": ("b",), "two": ("c",)}, {"b", "c"}),
        ({"one": ()}, set()),
    ],
)
def test_where_keys_are_wanted_the_request_to_paste_is_one_that_they_let_in(
    lists: dict[str, tuple[str, ...]], asked: set[str]
) -> None:
    """Tenants without a key can ask for nothing."""
    tenants = {name: TenantSettings(keys=(KeySettings(name),), models=models) for name, models in lists.items()}
    models = callable_with_a_key(Settings(tenants={**tenants, "keyless": TenantSettings(models=("z",))}))
    assert models == asked
    printed = "\n".join(lines(Entrance(HOME, keyed=True, models=models), [answer("a"), answer("b")]))
    assert f"{HOME}/v2/models/{'b' if asked else 'a'}/infer" in printed


def test_at_a_unix_socket_commands_say_where_it_is() -> None:
    address = unix_address(Path("/run/my app/s"))
    printed = list(lines(Entrance(address), [answer("a")]))
    assert printed[0] == "headway is serving on unix:/run/my app/s"
    for command in printed[printed.index("Try:") + 1 :]:
        curl = shlex.split(command)
        assert curl[:3] == ["curl", "--unix-socket", "/run/my app/s"]
        assert curl[3].startswith("http://localhost/")


def test_https_is_in_the_address() -> None:
    assert client_address("0.0.0.0", 443, "https") == "https://127.0.0.1:443"
    assert client_address("::", 443, "https") == "https://[::1]:443"


def test_requests_to_paste_have_the_keys_that_are_wanted_and_metrics_their_own_address() -> None:
    entrance = Entrance(HOME, "http://127.0.0.1:9000", keyed=True, admin_keyed=True)
    printed = list(lines(entrance, [answer("a")]))
    assert printed[1] == "  admin routes and /metrics on http://127.0.0.1:9000"
    infer, metrics = [shlex.split(line) for line in printed[printed.index("Try:") + 1 :]]
    assert infer[:4] == ["curl", "-H", "Authorization: Bearer $HEADWAY_KEY", f"{HOME}/v2/models/a/infer"]
    assert metrics == ["curl", "-H", "Authorization: Bearer $HEADWAY_ADMIN_KEY", "http://127.0.0.1:9000/metrics"]

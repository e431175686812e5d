from __future__ import annotations

import pytest

from headway.gateway.errors import BadRequest, MethodNotAllowed, NotFound
from headway.gateway.exchange import Request, Response
from headway.gateway.router import Parameters, Router, path_of


def handler(name: str):  # type: ignore[no-untyped-def]
    def answer(request: Request, at: Parameters) -> Response:
        return Response(200, name.encode())

    return answer


@pytest.fixture
def router() -> Router:
    router = Router()
    router.add("GET", "/v2/models/{model}", handler("metadata"))
    router.add("GET", "/v2/models/{model}/ready", handler("ready"))
    router.add("POST", "/v2/models/{model}/versions/{version}/infer", handler("infer"))
    router.add("GET", "/v2/models/stats", handler("stats"))
    return router


def found(router: Router, method: bytes, target: bytes) -> tuple[bytes, Parameters]:
    route, parameters = router.find(method, target)
    answer = route(Request(method, target, {}, "1.1"), parameters)
    assert isinstance(answer, Response)
    return answer.body, parameters


def test_a_pattern_takes_one_segment_per_name(router: Router) -> None:
    assert found(router, b"GET", b"/v2/models/a") == (b"metadata", {"model": "a"})
    assert found(router, b"GET", b"/v2/models/a/ready") == (b"ready", {"model": "a"})
    at = {"model": "a", "version": "3"}
    assert found(router, b"POST", b"/v2/models/a/versions/3/infer") == (b"infer", at)


def test_a_word_goes_before_a_name(router: Router) -> None:
    assert found(router, b"GET", b"/v2/models/stats") == (b"stats", {})


def test_a_target_found_once_is_found_again_the_same(router: Router) -> None:
    assert found(router, b"GET", b"/v2/models/a?x=1") == found(router, b"GET", b"/v2/models/a?x=1")


def test_the_memory_of_targets_is_bounded(router: Router) -> None:
    for number in range(10_000):
        router.find(b"GET", b"/v2/models/m%d" % number)
    assert len(router._found) <= 4096


def test_segments_are_decoded_once(router: Router) -> None:
    assert found(router, b"GET", b"/v2/models/a%20b%2525")[1] == {"model": "a b%25"}
    assert found(router, b"GET", b"/v2/models/%E2%98%83")[1] == {"model": "\u2603"}


@pytest.mark.parametrize("segment", [b"a%2Fb", b"%2f", b"%00", b"%0a", b"%7f", b"%", b"%2", b"%zz", b"%ff", b"%c3"])
def test_a_name_that_no_model_can_have_is_refused(router: Router, segment: bytes) -> None:
    with pytest.raises(BadRequest):
        router.find(b"GET", b"/v2/models/" + segment)


@pytest.mark.parametrize(
    "target", [b"/", b"", b"//", b"/v2", b"/v2/models", b"/v2/models//", b"/v2/models//ready", b"*"]
)
def test_everything_else_is_not_found(router: Router, target: bytes) -> None:
    with pytest.raises(NotFound):
        router.find(b"GET", target)


def test_get_answers_head_and_other_methods_are_told_what_is_allowed(router: Router) -> None:
    assert found(router, b"HEAD", b"/v2/models/a")[0] == b"metadata"
    with pytest.raises(MethodNotAllowed) as error:
        router.find(b"POST", b"/v2/models/a")
    assert error.value.headers == ((b"allow", b"GET, HEAD"),)


@pytest.mark.parametrize(
    ("target", "path"),
    [(b"/a/b?c#d", b"/a/b"), (b"/a#b?c", b"/a"), (b"http://host:80/a?b", b"/a"), (b"http://host", b"/"), (b"*", b"*")],
)
def test_the_path_is_what_stands_before_query_and_fragment(target: bytes, path: bytes) -> None:
    assert path_of(target) == path

"""Bad input of every kind gets its 4xx, never a 500, and leaves the server as good as before."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest

from tests.conformance.http_world import GOOD, LIMITS, message, run, tensor, world, x

NAN = float("nan")


def infer(body: Any, **headers: str) -> bytes:
    return message("POST", "/v2/models/add/infer", body, **headers)


def with_x(**changes: Any) -> bytes:
    entry = {**GOOD["inputs"][0], **changes}
    return infer({"inputs": [{name: value for name, value in entry.items() if value is not ...}]})


def kinds(datatype: str, data: str, shape: str = "[1,1]") -> bytes:
    """data, shape: JSON text, good or bad."""
    text = f'{{"name":"{datatype.lower()}","datatype":"{datatype}","shape":{shape},"data":{data}}}'
    return message("POST", "/v2/models/kinds/infer", f'{{"inputs":[{text}]}}'.encode("utf-8", "surrogatepass"))


def text(ids: dict[str, Any], mask: dict[str, Any]) -> bytes:
    return message("POST", "/v2/models/text/infer", {"inputs": [ids, mask]})


def raw(head: str, body: bytes = b"") -> bytes:
    return head.replace("\n", "\r\n").encode("latin-1") + body


POST = "POST /v2/models/add/infer HTTP/1.1\nHost: a\n"
PACKED = gzip.compress(json.dumps(GOOD).encode(), mtime=0)


def packed(body: bytes, coding: str = "gzip") -> bytes:
    return message("POST", "/v2/models/add/infer", body, Content_Encoding=coding)


def trailers(size: int) -> bytes:
    return raw(POST + "Transfer-Encoding: chunked\n\n0\n" + f"X: {'a' * size}\n" * 3 + "\n")


MALFORMED_HTTP: dict[str, tuple[bytes, int, str]] = {
    "not HTTP at all": (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, "malformed_http"),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed_http"),
    "HTTP/0.9": (b"GET /health\r\n\r\n", 505, "http_version_unsupported"),
    "HTTP/3.0": (raw("GET /health HTTP/3.0\nHost: a\n\n"), 400, "malformed_http"),
    "bare line feeds": (b"GET /health HTTP/1.1\nHost: a\n\n", 400, "malformed_http"),
    "space in the target": (raw("GET /a b HTTP/1.1\nHost: a\n\n"), 400, "malformed_http"),
    "control character in the target": (b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_http"),
    "high byte in the target": (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_http"),
    "no Host": (raw("GET /health HTTP/1.1\n\n"), 400, "malformed_http"),
    "two Hosts": (raw("GET /health HTTP/1.1\nHost: a\nHost: b\n\n"), 400, "malformed_http"),
    "space before the colon": (raw("GET /health HTTP/1.1\nHost : a\n\n"), 400, "malformed_http"),
    "folded header": (raw("GET /health HTTP/1.1\nHost: a\nX: b\n  c\n\n"), 400, "malformed_http"),
    "NUL in a header": (raw("GET /health HTTP/1.1\nHost: a\nX: b\0c\n\n"), 400, "malformed_http"),
    "header without colon": (raw("GET /health HTTP/1.1\nHost: a\nnonsense\n\n"), 400, "malformed_http"),
    "empty header name": (raw("GET /health HTTP/1.1\nHost: a\n: b\n\n"), 400, "malformed_http"),
    "length and chunked": (raw(POST + "Content-Length: 3\nTransfer-Encoding: chunked\n\n0\n\n"), 400, "malformed_http"),
    "chunked and length": (raw(POST + "Transfer-Encoding: chunked\nContent-Length: 3\n\n0\n\n"), 400, "malformed_http"),
    "two lengths": (raw(POST + "Content-Length: 3\nContent-Length: 4\n\nabc"), 400, "malformed_http"),
    "list of lengths": (raw(POST + "Content-Length: 3, 3\n\nabc"), 400, "malformed_http"),
    "signed length": (raw(POST + "Content-Length: +3\n\nabc"), 400, "malformed_http"),
    "negative length": (raw(POST + "Content-Length: -3\n\nabc"), 400, "malformed_http"),
    "overflowing length": (raw(POST + f"Content-Length: {'9' * 30}\n\n"), 400, "malformed_http"),
    "hexadecimal length": (raw(POST + "Content-Length: 0x3\n\nabc"), 400, "malformed_http"),
    "unknown transfer coding": (raw(POST + "Transfer-Encoding: gzip\n\n"), 501, "unsupported"),
    "two transfer codings": (raw(POST + "Transfer-Encoding: gzip, chunked\n\n0\n\n"), 501, "unsupported"),
    "chunked in HTTP/1.0": (raw("POST / HTTP/1.0\nTransfer-Encoding: chunked\n\n0\n\n"), 400, "malformed_http"),
    "bad chunk size": (raw(POST + "Transfer-Encoding: chunked\n\nzz\nabc\n"), 400, "malformed_http"),
    "huge chunk size": (raw(POST + "Transfer-Encoding: chunked\n\nffffffffffffffffff\n"), 400, "malformed_http"),
    "chunk longer than its size": (raw(POST + "Transfer-Encoding: chunked\n\n1\nabc\n0\n\n"), 400, "malformed_http"),
    "compressed body": (infer(GOOD, Content_Encoding="br"), 415, "unsupported_encoding"),
    "unknown expectation": (infer(GOOD, Expect="a-pony"), 417, "expectation_failed"),
    "declared body too large": (raw(POST + "Content-Length: 60000\n\n"), 413, "body_too_large"),
    "chunked body too large": (
        raw(POST + "Transfer-Encoding: chunked\n\nf000\n", b" " * 0xF000),
        413,
        "body_too_large",
    ),
    "chunk size without digits": (raw(POST + "Transfer-Encoding: chunked\n\n;a=b\nabc\n"), 400, "malformed_http"),
    "negative chunk size": (raw(POST + "Transfer-Encoding: chunked\n\n-1\nabc\n"), 400, "malformed_http"),
    "chunk size after a space": (raw(POST + "Transfer-Encoding: chunked\n\n 3\nabc\n0\n\n"), 400, "malformed_http"),
    "hexadecimal chunk size by its prefix": (
        raw(POST + "Transfer-Encoding: chunked\n\n0x3\nabc\n0\n\n"),
        400,
        "malformed_http",
    ),
    "bare line feed in chunks": (
        raw(POST + "Transfer-Encoding: chunked\n\n") + b"3\nabc\n0\n\n",
        400,
        "malformed_http",
    ),
    "control character in a chunk extension": (
        raw(POST + "Transfer-Encoding: chunked\n\n3;a=\0\nabc\n0\n\n"),
        400,
        "malformed_http",
    ),
    "trailers too large": (trailers(3000), 431, "headers_too_large"),
    "chunked twice": (raw(POST + "Transfer-Encoding: chunked, chunked\n\n0\n\n"), 400, "malformed_http"),
    "chunked with a parameter": (raw(POST + "Transfer-Encoding: chunked;a=b\n\n0\n\n"), 501, "unsupported"),
    "length and two codings": (
        raw(POST + "Content-Length: 3\nTransfer-Encoding: gzip, chunked\n\n0\n\n"),
        400,
        "malformed_http",
    ),
    "empty length": (raw(POST + "Content-Length: \n\n"), 400, "malformed_http"),
    "length in other digits": (raw(POST + "Content-Length: \xb2\n\nab"), 400, "malformed_http"),
    "length with a fraction": (raw(POST + "Content-Length: 3.0\n\nabc"), 400, "malformed_http"),
    "carriage return in a header": (b"GET /health HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400, "malformed_http"),
    "header name with a space": (raw("GET /health HTTP/1.1\nHost: a\nX Y: b\n\n"), 400, "malformed_http"),
    "header name with a high byte": (raw("GET /health HTTP/1.1\nHost: a\nX\xff: b\n\n"), 400, "malformed_http"),
    "unknown method": (raw("FROB /health HTTP/1.1\nHost: a\n\n"), 400, "malformed_http"),
    "method in small letters": (raw("get /health HTTP/1.1\nHost: a\n\n"), 400, "malformed_http"),
    "no target": (raw("GET HTTP/1.1\nHost: a\n\n"), 400, "malformed_http"),
    "another protocol": (raw("GET /health FTP/1.1\nHost: a\n\n"), 400, "malformed_http"),
    "no version number": (raw("GET /health HTTP/\nHost: a\n\n"), 400, "malformed_http"),
    "a reply": (raw("HTTP/1.1 200 OK\nContent-Length: 0\n\n"), 400, "malformed_http"),
    "two expectations": (infer(GOOD, Expect="100-continue, a-pony"), 417, "expectation_failed"),
    "two content codings": (packed(PACKED, "gzip, gzip"), 415, "unsupported_encoding"),
    "a content coding that is not supported": (packed(PACKED, "zstd"), 415, "unsupported_encoding"),
    "no gzip": (packed(b"hello there"), 400, "invalid_request"),
    "no deflate": (packed(b"\xff" * 30, "deflate"), 400, "invalid_request"),
    "gzip cut short": (packed(PACKED[:-9]), 400, "invalid_request"),
    "gzip that is broken in the middle": (packed(PACKED[:20] + b"\xff" * 20 + PACKED[40:]), 400, "invalid_request"),
    "gzip with a wrong checksum": (packed(PACKED[:-8] + b"\0" * 8), 400, "invalid_request"),
    "something behind gzip": (packed(PACKED + b"more"), 400, "invalid_request"),
    "gzip behind gzip": (packed(PACKED * 2), 400, "invalid_request"),
    "gzip bomb": (packed(gzip.compress(b" " * 40_000_000, 9)), 413, "body_too_large"),
    "deflate bomb": (packed(zlib.compress(b" " * 40_000_000, 9), "deflate"), 413, "body_too_large"),
    "endless target": (raw(f"GET /{'a' * 8300} HTTP/1.1\nHost: a\n\n"), 414, "uri_too_long"),
    "header too large": (raw(f"GET /health HTTP/1.1\nHost: a\nX: {'a' * 8200}\n\n"), 431, "headers_too_large"),
    "headers too large": (
        raw("GET /health HTTP/1.1\nHost: a\n" + "X: " + "\nX: ".join(["a" * 900] * 10) + "\n\n"),
        431,
        "headers_too_large",
    ),
    "too many headers": (
        raw("GET /health HTTP/1.1\nHost: a\n" + "".join(f"X{n}: a\n" for n in range(200)) + "\n"),
        431,
        "headers_too_large",
    ),
}

ROUTES: dict[str, tuple[bytes, int, str]] = {
    "unknown path": (message("GET", "/nothing"), 404, "not_found"),
    "root": (message("GET", "/"), 404, "not_found"),
    "double slash": (message("GET", "/v2//models/add"), 404, "not_found"),
    "dots are not followed": (message("GET", "/v2/models/../health/live"), 404, "not_found"),
    "wrong method": (message("DELETE", "/v2/models/add/infer"), 405, "method_not_allowed"),
    "GET of infer": (message("GET", "/v2/models/add/infer"), 405, "method_not_allowed"),
    "POST of health": (message("POST", "/health", b""), 405, "method_not_allowed"),
    "OPTIONS *": (message("OPTIONS", "*"), 404, "not_found"),
    "CONNECT": (raw("CONNECT a:80 HTTP/1.1\nHost: a\n\n"), 404, "not_found"),
    "unknown model": (message("POST", "/v2/models/nope/infer", GOOD), 404, "model_not_found"),
    "unknown version": (message("POST", "/v2/models/add/versions/9/infer", GOOD), 404, "model_not_found"),
    "version is no number": (message("POST", "/v2/models/add/versions/one/infer", GOOD), 404, "model_not_found"),
    "version 0": (message("GET", "/v2/models/add/versions/0"), 404, "model_not_found"),
    "negative version": (message("GET", "/v2/models/add/versions/-1"), 404, "model_not_found"),
    "huge version": (message("GET", f"/v2/models/add/versions/{'9' * 100}"), 404, "model_not_found"),
    "version in other digits": (message("GET", "/v2/models/add/versions/%D9%A1"), 404, "model_not_found"),
    "encoded slash in a name": (message("GET", "/v2/models/a%2Fb"), 400, "invalid_request"),
    "encoded slash traversal": (message("GET", "/v2/models/..%2f..%2fetc"), 400, "invalid_request"),
    "NUL in a name": (message("GET", "/v2/models/a%00b"), 400, "invalid_request"),
    "bad percent": (message("GET", "/v2/models/a%zz"), 400, "invalid_request"),
    "cut percent": (message("GET", "/v2/models/a%2"), 400, "invalid_request"),
    "name is not UTF-8": (message("GET", "/v2/models/%ff%fe"), 400, "invalid_request"),
}

BODIES: dict[str, tuple[bytes, int, str]] = {
    "no body": (infer(None), 400, "invalid_request"),
    "empty body": (infer(b""), 400, "invalid_request"),
    "not JSON": (infer(b"hello"), 400, "invalid_request"),
    "cut JSON": (infer(json.dumps(GOOD).encode()[:-5]), 400, "invalid_request"),
    "two documents": (infer(json.dumps(GOOD).encode() * 2), 400, "invalid_request"),
    "trailing comma": (infer(b'{"inputs":[],}'), 400, "invalid_request"),
    "bytes that are not UTF-8": (infer(b'{"id":"\xff\xfe","inputs":[]}'), 400, "invalid_request"),
    "a list": (infer([]), 400, "invalid_request"),
    "null": (infer(b"null"), 400, "invalid_request"),
    "a million brackets": (infer(b"[" * 40_000), 400, "invalid_request"),
    "nested objects without end": (infer(b'{"a":' * 8_000), 400, "invalid_request"),
    "no inputs member": (infer({}), 400, "invalid_request"),
    "inputs is an object": (infer({"inputs": {}}), 400, "invalid_request"),
    "no inputs": (infer({"inputs": []}), 400, "invalid_request"),
    "input is null": (infer({"inputs": [None]}), 400, "invalid_request"),
    "unknown input": (with_x(name="w"), 400, "invalid_request"),
    "missing input": (infer({"inputs": [tensor("bias", "FP32", [1, 2], [1, 2])]}), 400, "invalid_request"),
    "input given twice": (infer({"inputs": GOOD["inputs"] * 2}), 400, "invalid_request"),
    "name is a number": (with_x(name=1), 400, "invalid_request"),
    "no name": (with_x(name=...), 400, "invalid_request"),
    "no shape": (with_x(shape=...), 400, "invalid_request"),
    "no datatype": (with_x(datatype=...), 400, "invalid_request"),
    "no data": (with_x(data=...), 400, "invalid_request"),
    "other datatype": (with_x(datatype="INT64"), 400, "invalid_request"),
    "unknown datatype": (with_x(datatype="FLOAT"), 400, "invalid_request"),
    "datatype in small letters": (with_x(datatype="fp32"), 400, "invalid_request"),
    "shape is a number": (with_x(shape=2), 400, "invalid_request"),
    "no dimensions": (with_x(shape=[], data=1.0), 400, "invalid_request"),
    "too few dimensions": (with_x(shape=[2]), 400, "invalid_request"),
    "too many dimensions": (with_x(shape=[1, 2, 1]), 400, "invalid_request"),
    "thousands of dimensions": (with_x(shape=[1] * 5000), 400, "invalid_request"),
    "wrong fixed dimension": (with_x(shape=[1, 3], data=[1, 2, 3]), 400, "invalid_request"),
    "negative rows": (with_x(shape=[-1, 2]), 400, "invalid_request"),
    "no rows": (with_x(shape=[0, 2], data=[]), 400, "invalid_request"),
    "float in the shape": (with_x(shape=[1.0, 2]), 400, "invalid_request"),
    "string in the shape": (with_x(shape=["1", 2]), 400, "invalid_request"),
    "boolean in the shape": (with_x(shape=[True, 2]), 400, "invalid_request"),
    "null in the shape": (with_x(shape=[None, 2]), 400, "invalid_request"),
    "huge rows": (with_x(shape=[2**62, 2]), 400, "invalid_request"),
    "rows beyond 64 bits": (with_x(shape=[2**70, 2]), 400, "invalid_request"),
    "shape with thousands of digits": (
        infer(b'{"inputs":[{"name":"x","datatype":"FP32","shape":[%b,2],"data":[1]}]}' % (b"9" * 9000)),
        400,
        "invalid_request",
    ),
    "too few values": (with_x(data=[1]), 400, "invalid_request"),
    "too many values": (with_x(data=[1, 2, 3]), 400, "invalid_request"),
    "data is a number": (with_x(data=5), 400, "invalid_request"),
    "data is a string": (with_x(data="12"), 400, "invalid_request"),
    "data is null": (with_x(data=None), 400, "invalid_request"),
    "data is an object": (with_x(data={"0": 1}), 400, "invalid_request"),
    "string among numbers": (with_x(data=[1, "2"]), 400, "invalid_request"),
    "null among numbers": (with_x(data=[1, None]), 400, "invalid_request"),
    "true among numbers": (with_x(data=[1, True]), 400, "invalid_request"),
    "NaN literal": (with_x(data=[1, NAN]), 400, "invalid_request"),
    "Infinity literal": (with_x(data=[1, float("inf")]), 400, "invalid_request"),
    "number beyond double": (kinds("FP64", "[1e400]"), 400, "invalid_request"),
    "number beyond FP32": (with_x(data=[1, 1e39]), 400, "invalid_request"),
    "number beyond FP16": (kinds("FP16", "[70000]"), 400, "invalid_request"),
    "number beyond BF16": (kinds("BF16", "[1e39]"), 400, "invalid_request"),
    "number just beyond FP32": (kinds("FP32", "[3.4028236e38]"), 400, "invalid_request"),
    "ragged nesting": (with_x(shape=[2, 2], data=[[1, 2], [3]]), 400, "invalid_request"),
    "nesting that ends early": (with_x(shape=[2, 2], data=[[1, 2], 3]), 400, "invalid_request"),
    "nesting too deep": (with_x(shape=[1, 2], data=[[[1, 2]]]), 400, "invalid_request"),
    "nesting of another shape": (with_x(shape=[2, 2], data=[[1, 2, 3, 4]]), 400, "invalid_request"),
    "outputs is an object": (infer(x(outputs={})), 400, "invalid_request"),
    "unknown output": (infer(x(outputs=[{"name": "w"}])), 400, "invalid_request"),
    "output asked for twice": (infer(x(outputs=[{"name": "y"}, {"name": "y"}])), 400, "invalid_request"),
    "binary output": (
        infer(x(outputs=[{"name": "y", "parameters": {"binary_data": 1}}])),
        400,
        "invalid_request",
    ),
    "classification": (infer(x(outputs=[{"name": "y", "parameters": {"classification": 3}}])), 400, "invalid_request"),
    "binary outputs": (infer(x(parameters={"binary_data_output": "true"})), 400, "invalid_request"),
    "sequence": (infer(x(parameters={"sequence_id": 7})), 400, "invalid_request"),
    "reserved prefix": (infer(x(parameters={"triton_enable": True})), 400, "invalid_request"),
    "parameter is a list": (infer(x(parameters={"a": [1]})), 400, "invalid_request"),
    "parameter is null": (infer(x(parameters={"a": None})), 400, "invalid_request"),
    "parameters is a list": (infer(x(parameters=[])), 400, "invalid_request"),
    "id is a number": (infer(x(id=7)), 400, "invalid_request"),
    "timeout is negative": (infer(x(parameters={"timeout": -1})), 400, "invalid_request"),
    "timeout is a string": (infer(x(parameters={"timeout": "1"})), 400, "invalid_request"),
    "timeout is true": (infer(x(parameters={"timeout": True})), 400, "invalid_request"),
    "priority is a float": (infer(x(parameters={"priority": 1.5})), 400, "invalid_request"),
    "timeout header is no number": (infer(GOOD, X_Request_Timeout_Ms="soon"), 400, "invalid_request"),
    "timeout header is NaN": (infer(GOOD, X_Request_Timeout_Ms="nan"), 400, "invalid_request"),
    "timeout header is infinite": (infer(GOOD, X_Request_Timeout_Ms="inf"), 400, "invalid_request"),
    "timeout header is 0": (infer(GOOD, X_Request_Timeout_Ms="0"), 400, "invalid_request"),
    "priority header is no number": (infer(GOOD, X_Priority="high"), 400, "invalid_request"),
    "binary request": (infer(GOOD, Inference_Header_Content_Length="10"), 400, "invalid_request"),
    "inputs differ in rows": (
        infer({"inputs": [*GOOD["inputs"], tensor("bias", "FP32", [2, 2], [1, 2, 3, 4])]}),
        400,
        "invalid_request",
    ),
    "padded inputs differ in length": (
        text(tensor("ids", "INT64", [1, 2], [1, 2]), tensor("mask", "INT64", [1, 3], [1, 1, 1])),
        400,
        "invalid_request",
    ),
    "padded length 0": (
        text(tensor("ids", "INT64", [1, 0], []), tensor("mask", "INT64", [1, 0], [])),
        400,
        "invalid_request",
    ),
    "INT8 too large": (kinds("INT8", "[128]"), 400, "invalid_request"),
    "INT8 too small": (kinds("INT8", "[-129]"), 400, "invalid_request"),
    "UINT8 negative": (kinds("UINT8", "[-1]"), 400, "invalid_request"),
    "UINT8 too large": (kinds("UINT8", "[256]"), 400, "invalid_request"),
    "INT16 too large": (kinds("INT16", "[32768]"), 400, "invalid_request"),
    "UINT16 too large": (kinds("UINT16", "[65536]"), 400, "invalid_request"),
    "INT32 too large": (kinds("INT32", "[2147483648]"), 400, "invalid_request"),
    "UINT32 too large": (kinds("UINT32", "[4294967296]"), 400, "invalid_request"),
    "INT64 too large": (kinds("INT64", "[9223372036854775808]"), 400, "invalid_request"),
    "INT64 too small": (kinds("INT64", "[-9223372036854775809]"), 400, "invalid_request"),
    "UINT64 too large": (kinds("UINT64", "[18446744073709551616]"), 400, "invalid_request"),
    "UINT64 negative": (kinds("UINT64", "[-1]"), 400, "invalid_request"),
    "integer with a thousand digits": (kinds("INT64", f"[{'9' * 1000}]"), 400, "invalid_request"),
    "integer with ten thousand digits": (kinds("INT64", f"[{'9' * 10_000}]"), 400, "invalid_request"),
    "1.0 for an integer": (kinds("INT32", "[1.0]"), 400, "invalid_request"),
    "1e2 for an integer": (kinds("INT32", "[1e2]"), 400, "invalid_request"),
    "true for an integer": (kinds("INT32", "[true]"), 400, "invalid_request"),
    "2 for a boolean": (kinds("BOOL", "[2]"), 400, "invalid_request"),
    "text for a boolean": (kinds("BOOL", '["true"]'), 400, "invalid_request"),
    "number for text": (kinds("BYTES", "[1]"), 400, "invalid_request"),
    "lone surrogate": (kinds("BYTES", '["\\ud800"]'), 400, "invalid_request"),
    "lone surrogate as bytes": (kinds("BYTES", '["\ud800"]'), 400, "invalid_request"),
    "raw control character in text": (kinds("BYTES", '["a\nb"]'), 400, "invalid_request"),
    "data nested a thousand deep": (kinds("FP32", "[" * 1000 + "]" * 1000), 400, "invalid_request"),
    "data nested thirty thousand deep": (kinds("FP32", "[" * 20_000 + "]" * 20_000), 400, "invalid_request"),
    "generate on a model that does not stream": (
        message("POST", "/v2/models/add/generate", {}),
        400,
        "invalid_request",
    ),
    "infer on a model that streams": (message("POST", "/v2/models/talk/infer", GOOD), 400, "invalid_request"),
    "generate without an object": (message("POST", "/v2/models/talk/generate_stream", [1]), 400, "invalid_request"),
    "generate without a body": (message("POST", "/v2/models/talk/generate", b""), 400, "invalid_request"),
    "generate with cut JSON": (message("POST", "/v2/models/talk/generate", b'{"a":'), 400, "invalid_request"),
}

EVERYTHING = MALFORMED_HTTP | ROUTES | BODIES


@pytest.mark.parametrize("case", EVERYTHING)
def test_bad_input_gets_its_status_and_the_next_request_is_served(case: str) -> None:
    async def scenario() -> None:
        async with world(limits=LIMITS) as w:
            data, status, code = EVERYTHING[case]
            client = await w.connect()
            client.send(data)
            answer = await client.answer()
            client.close()
            assert (answer.status, answer.json["code"]) == (status, code), answer
            assert answer.json["error"]
            assert answer.json["request_id"] == answer.headers["x-request-id"]
            assert not w.runtime.said, "what is refused never reaches the runtime"
            good = await w.infer("add", GOOD)
            assert good.status == 200, good

    run(scenario())


@pytest.mark.parametrize("case", MALFORMED_HTTP)
def test_a_connection_whose_bytes_cannot_be_told_apart_any_more_is_closed(case: str) -> None:
    async def scenario() -> None:
        async with world(limits=LIMITS) as w:
            client = await w.connect()
            client.send(MALFORMED_HTTP[case][0])
            answer = await client.answer()
            assert answer.headers["connection"] == "close"
            assert await client.closed()

    run(scenario())


@pytest.mark.parametrize("case", BODIES)
def test_a_request_that_is_only_wrong_keeps_its_connection(case: str) -> None:
    async def scenario() -> None:
        async with world(limits=LIMITS) as w:
            client = await w.connect()
            client.send(BODIES[case][0])
            assert (await client.answer()).status == 400
            client.send(infer(GOOD))
            assert (await client.answer()).status == 200

    run(scenario())


EXPECTED_WORDS: dict[str, tuple[bytes, list[str]]] = {
    "datatype": (with_x(datatype="INT64"), ["'x'", "FP32", "INT64"]),
    "shape": (with_x(shape=[1, 3], data=[1, 2, 3]), ["'x'", "[-1, 2]", "[1, 3]"]),
    "count": (with_x(data=[1, 2, 3]), ["'x'", "[1, 2]", "2 values", "3"]),
    "unknown input": (with_x(name="w"), ["'w'", "x, bias"]),
    "missing input": (infer({"inputs": [tensor("bias", "FP32", [1, 2], [1, 2])]}), ["'x'", "bias"]),
    "unknown output": (infer(x(outputs=[{"name": "w"}])), ["'w'", "y, z"]),
    "range": (kinds("INT8", "[0, 128]", "[1,2]"), ["'int8'", "INT8", "127", "128 at position 1", "-128 to 127"]),
    "overflow": (with_x(data=[1, 1e39]), ["'x'", "FP32", "1e+39", "position 1"]),
    "rows": (
        infer({"inputs": [*GOOD["inputs"], tensor("bias", "FP32", [2, 2], [1, 2, 3, 4])]}),
        ["'x'", "1 rows", "'bias'", "2"],
    ),
    "method": (message("PUT", "/health"), ["PUT", "GET, HEAD"]),
    "model": (message("GET", "/v2/models/nope"), ["'nope'", "add, text, kinds, talk"]),
    "version": (message("GET", "/v2/models/add/versions/9"), ["'add'", "9", "1"]),
}


@pytest.mark.parametrize("case", EXPECTED_WORDS)
def test_an_error_says_what_was_expected_and_what_came(case: str) -> None:
    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            data, words = EXPECTED_WORDS[case]
            client.send(data)
            answer = await client.answer()
            assert 400 <= answer.status < 500
            for word in words:
                assert word in answer.json["error"], answer.json["error"]

    run(scenario())


def test_an_invalid_request_costs_the_time_to_parse_it_not_the_size_that_it_claims() -> None:
    """Shapes are only multiplied, never allocated."""

    async def scenario() -> None:
        async with world() as w:
            answer = await w.infer("kinds", {"inputs": [tensor("fp64", "FP64", [2**40, 2**40], [1])]})
            assert answer.status == 400

    run(scenario())

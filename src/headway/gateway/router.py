"""From method and path to a handler.

A pattern is a path whose `{name}` segments match any one segment. Segments are percent-decoded, once. One
trailing slash is tolerated. A decoded segment with '/', a control character or no valid UTF-8 is refused (400);
an empty one matches nothing (404).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes

import httptools

from headway.gateway.errors import BadRequest, MethodNotAllowed, NotFound
from headway.gateway.exchange import Pending, Request, Response, Stream

Parameters: TypeAlias = dict[str, str]
RouteHandler: TypeAlias = Callable[[Request, Parameters], Response | Pending | Stream]

CACHED_TARGETS = 4096
CACHED_TARGET_BYTES = 512


class _Node:
    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.any: _Node | None = None
        self.name = ""
        self.methods: dict[bytes, RouteHandler] = {}


class Router:
    def __init__(self) -> None:
        self._root = _Node()
        self._found: dict[bytes, tuple[dict[bytes, RouteHandler], Parameters]] = {}

    def add(self, method: str, pattern: str, handler: RouteHandler) -> None:
        """GET answers HEAD as well."""
        node = self._root
        for segment in pattern.strip("/").split("/"):
            if segment.startswith("{"):
                if node.any is None:
                    node.any = _Node()
                    node.any.name = segment[1:-1]
                node = node.any
            else:
                node = node.children.setdefault(segment, _Node())
        node.methods[method.encode()] = handler
        if method == "GET":
            node.methods[b"HEAD"] = handler

    def find(self, method: bytes, target: bytes) -> tuple[RouteHandler, Parameters]:
        """Raises NotFound, MethodNotAllowed, BadRequest."""
        found = self._found.get(target)
        if found is None:
            found = self._match(target)
            if len(target) <= CACHED_TARGET_BYTES:
                if len(self._found) >= CACHED_TARGETS:
                    self._found.clear()
                self._found[target] = found
        methods, parameters = found
        handler = methods.get(method)
        if handler is None:
            allowed = ", ".join(sorted(name.decode() for name in methods))
            raise MethodNotAllowed(
                f"method {method.decode('latin-1')} is not allowed here, allowed: {allowed}",
                headers=((b"allow", allowed.encode()),),
            )
        return handler, parameters

    def _match(self, target: bytes) -> tuple[dict[bytes, RouteHandler], Parameters]:
        found = _walk(self._root, segments_of(target), 0)
        if found is None:
            raise _not_found(target)
        return found


def _walk(node: _Node, segments: list[str], at: int) -> tuple[dict[bytes, RouteHandler], Parameters] | None:
    """A fixed segment goes before a name, as far as it leads anywhere: a model may be called "stats"."""
    if at == len(segments):
        return (node.methods, {}) if node.methods else None
    segment = segments[at]
    fixed = node.children.get(segment)
    found = None if fixed is None else _walk(fixed, segments, at + 1)
    if found is None and node.any is not None and segment:
        found = _walk(node.any, segments, at + 1)
        if found is not None:
            found[1][node.any.name] = segment
    return found


def path_of(target: bytes) -> bytes:
    """The path of a request target in origin form or absolute form."""
    if not target.startswith(b"/"):
        try:
            url: Any = httptools.parse_url(target)  # its declaration does not say that it may have no path
        except httptools.HttpParserInvalidURLError:
            return target
        return bytes(url.path or b"/")
    return target.partition(b"?")[0].partition(b"#")[0]


def segments_of(target: bytes) -> list[str]:
    raw = path_of(target).removeprefix(b"/").removesuffix(b"/").split(b"/")
    return [_decoded(segment) for segment in raw]


def _decoded(raw: bytes) -> str:
    if b"%" not in raw:
        return raw.decode("ascii")  # the parser lets nothing else pass
    for tail in raw.split(b"%")[1:]:
        if len(tail) < 2 or not all(digit in b"0123456789abcdefABCDEF" for digit in tail[:2]):
            raise BadRequest(f"path segment {raw.decode('latin-1')!r}: '%' is not followed by two hexadecimal digits")
    try:
        segment = unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise BadRequest(f"path segment {raw.decode('latin-1')!r} is not percent-encoded UTF-8") from None
    if "/" in segment or any(ord(character) < 32 or ord(character) == 127 for character in segment):
        raise BadRequest(f"path segment {raw.decode('latin-1')!r}: names have no '/' and no control characters")
    return segment


def _not_found(target: bytes) -> NotFound:
    return NotFound(f"no such path: {path_of(target).decode('latin-1')[:200]}")

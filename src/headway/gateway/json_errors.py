"""What is wrong with a body that is not the JSON it should be, in words that its sender can act on."""

from __future__ import annotations

import re
from collections.abc import Mapping

_AT = re.compile(r"invalid character \(byte (\d+)\)")
_NOT_FINITE = re.compile(rb"-?Inf|NaN|-?inf|nan")

NO_JSON_NUMBER = "JSON has no NaN and no infinity"


def in_words(error: Exception, raw: bytes | memoryview, advice: Mapping[str, str] | None = None) -> str:
    """error: of the decoder.  advice: what to do instead, by what is wrong (`NO_JSON_NUMBER`)."""
    if not bytes(raw[:1024]).strip():
        return "it is empty" if len(raw) <= 1024 else "it begins with nothing but white space"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    text = str(error)
    if text == "Input data was truncated":
        return f"the JSON ends in the middle, after {len(raw)} bytes"
    at = _AT.search(text)
    if at is None or not _NOT_FINITE.match(bytes(raw[max(0, int(at[1]) - 1) : int(at[1]) + 8]).lstrip(b" [,:")):
        return text or "nested too deeply"
    instead = (advice or {}).get(NO_JSON_NUMBER, "")
    return f"{NO_JSON_NUMBER} (byte {at[1]})" + (f"; {instead}" if instead else "")

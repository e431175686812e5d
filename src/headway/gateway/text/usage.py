"""What an answer cost, as clients are told."""

from __future__ import annotations

from typing import Any


def usage(prompt: int, completion: int, cached: int) -> dict[str, Any]:
    """Tokens. prompt: of each prompt once, however many answers it has.  cached: of those, found in the cache."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }

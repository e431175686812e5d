"""Requests to language models that are wrong: each is told what, and nothing reaches the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.wire.messages import Submit
from tests.conformance.http_world import run
from tests.conformance.language_world import CONTEXT, LanguageRuntime, answers, language_world, meta_of, write_model
from tests.conformance.malformed import BOTH, requests

MOST_BYTES = 4096


def complaints(answer: Any, path: str, body: Any, wrong: Any, vocabulary: int, context: int = CONTEXT) -> list[str]:
    """What is amiss with an error's reply."""
    where = f"{path} {str(body)[:120]} -> {answer}"
    if answer.status != wrong.status:
        return [f"status {answer.status}, not {wrong.status}: {where}"]
    error = answer.json["error"]
    found = []
    if set(error) != {"message", "type", "param", "code"} or error["type"] != "invalid_request_error":
        found.append(f"shape: {where}")
    if error["param"] != (wrong.param or None):
        found.append(f"param {error['param']!r}, not {wrong.param!r}: {where}")
    for says in wrong.says:
        text = says.replace("{c}", str(context)).replace("{v}", str(vocabulary - 1))
        if text not in error["message"]:
            found.append(f"does not say {text!r}: {where}")
    if len(answer.body) > MOST_BYTES:
        found.append(f"{len(answer.body)} bytes: {where}")
    return found


def test_every_malformed_request_is_told_what_is_wrong_with_which_numbers(tmp_path: Path) -> None:
    file = write_model(tmp_path)
    language = meta_of(file).language
    assert language is not None
    table = requests()
    assert len(table) >= 120 and len(BOTH) >= 60

    async def scenario() -> list[str]:
        runtime = LanguageRuntime(answers([5]))
        found = []
        async with language_world(file, runtime) as w:
            for path, body, wrong in table:
                answer = await w.ask("POST", path, body, **wrong.headers)
                found += complaints(answer, path, body, wrong, language.vocabulary)
            assert runtime.all(Submit) == []
            assert w.gateway.in_flight == 0
        return found

    found = run(scenario())
    assert not found, "\n".join(found)

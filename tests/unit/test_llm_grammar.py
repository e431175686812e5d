"""Structured output: whatever is drawn of what may come is of the form, and a form that cannot be had says why."""

from __future__ import annotations

import json
import re
from random import Random

import numpy as np
import pytest

llguidance = pytest.importorskip("llguidance", reason="structured output needs llguidance, of the extra llm")

from headway.llm.grammar import state as states  # noqa: E402
from headway.llm.grammar.form import DEEPEST, LONGEST, Form, FormError, any_object, regex, schema  # noqa: E402
from headway.llm.grammar.state import GrammarFailed, GrammarState, GrammarVocabulary  # noqa: E402

END = 256
TOKENS = [bytes([byte]) for byte in range(256)] + [b"<|end|>", b'{"', b'": ', b"true", b"12", b'", "', b"}}"]
VOCABULARY = GrammarVocabulary(TOKENS, [END], [END], lambda text: list(text.encode()))
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def drawn(form: Form, seed: int, most: int = 400) -> tuple[list[int], str]:
    """Any of the tokens that may come, again and again; the text ends as soon as it may, in time."""
    random, state, output = Random(seed), GrammarState(VOCABULARY, form), list[int]()
    while True:
        may = np.nonzero(state.allowed())[0].tolist()
        assert may, "there is always something that may come"
        token = END if END in may and len(output) > 20 else random.choice(may)
        if token == END:
            assert state.complete
            return output, b"".join(TOKENS[token] for token in output).decode("utf-8", "replace")
        assert len(output) < most
        state.accept(token)
        output.append(token)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_drawn_is_of_the_form(seed: int) -> None:
    _, text = drawn(schema(json.dumps(PERSON)), seed, most=3000)
    person = json.loads(text)
    assert list(person) == ["name", "age"]
    assert len(person["name"]) <= 5 and isinstance(person["age"], int) and person["age"] >= 0
    _, text = drawn(regex(r"[a-c]{3,5}-(x|yy)"), seed)
    assert re.fullmatch(r"[a-c]{3,5}-(x|yy)", text)


def test_an_object_is_an_object() -> None:
    state = GrammarState(VOCABULARY, any_object())
    first = [TOKENS[token] for token in np.nonzero(state.allowed())[0]]
    assert first == [b"{", b'{"']
    for token in b'{"a": [1, {"b": null}]}':
        assert not state.complete
        state.accept(token)
    assert state.complete and state.over
    assert np.nonzero(state.allowed())[0].tolist() == [END]


@pytest.mark.parametrize("seed", range(5))
def test_made_anew_from_its_tokens_it_goes_on_as_it_was(seed: int) -> None:
    form = schema(PERSON)
    output, _ = drawn(form, seed, most=3000)
    state = GrammarState(VOCABULARY, form)
    for place, token in enumerate(output):
        anew = GrammarState(VOCABULARY, Form(form.kind, form.grammar), output[:place])
        assert (anew.allowed() == state.allowed()).all()
        assert (anew.complete, anew.over) == (state.complete, state.over)
        state.accept(token)


def test_spaces_between_the_parts_come_to_an_end() -> None:
    state = GrammarState(VOCABULARY, any_object(), list(b"{" + b" " * 20))
    assert not state.allowed()[ord(" ")]


def test_a_token_that_may_not_come_fails_its_sequence_alone() -> None:
    state, other = GrammarState(VOCABULARY, any_object()), GrammarState(VOCABULARY, any_object())
    with pytest.raises(GrammarFailed):
        state.accept(ord("x"))
    with pytest.raises(GrammarFailed):
        state.allowed()
    with pytest.raises(GrammarFailed):
        GrammarState(VOCABULARY, any_object(), [ord("x")])
    other.accept(ord("{"))


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ('{"type":', "is not JSON: Expecting value"),
        ("[1]", "is [1]; it must be an object or a boolean"),
        ('{"type": "nonsense"}', "Invalid type: nonsense"),
        ('{"$ref": "#/nowhere"}', "'/nowhere' does not exist"),
        ('{"$ref": "http://127.0.0.1:9/x"}', "http://127.0.0.1:9/x"),
        ('{"type": "string", "pattern": "("}', "unclosed group"),
        ('{"type": "string", "minLength": 5, "maxLength": 2}', "minLength (5) is greater than maxLength (2)"),
        ('{"not": {"type": "string"}}', 'Unimplemented keys: ["not"]'),
        ('{"type": "integer", "multipleOf": 999983}', "comes to 999983, as a least common multiple; at most 10000"),
        ('{"allOf": [{"multipleOf": 9.97}, {"items": {"multipleOf": 991}}]}', "comes to 988027"),
        ('{"allOf": [' + ", ".join(f'{{"properties": {{"a{n}": {{}}}}}}' for n in range(300)) + "]}", "too large"),
        ('{"type": "integer", "multipleOf": 0}', "invalid multiple of"),
        ('{"x-guidance": {"lenient": true}}', "x-guidance"),
        ('{"a":' * 5000 + "1" + "}" * 5000, f"nested more than {DEEPEST} deep"),
        ('{"items":' * 70 + "{}" + "}" * 70, f"nested more than {DEEPEST} deep"),
        ('{"description": "' + "x" * LONGEST + '"}', f"at most {LONGEST} are taken"),
    ],
    ids=lambda told: told[:40],
)
def test_a_schema_that_cannot_be_used_says_what_is_wrong(told: str, said: str) -> None:
    with pytest.raises(FormError, match=re.escape(said)) as raised:
        schema(told)
    assert len(str(raised.value)) < 600 and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "unclosed group"),
        ("(?=a)b", "look-around"),
        ("x" * (LONGEST + 1), "at most"),
        ("(" * 2000 + ")" * 2000, "more than 1000 groups"),
    ],
    ids=lambda pattern: pattern[:20],
)
def test_an_expression_that_cannot_be_used_says_what_is_wrong(pattern: str, said: str) -> None:
    with pytest.raises(FormError, match=said):
        regex(pattern)


def test_divisors_that_are_round_or_go_into_each_other_are_taken() -> None:
    schema({"properties": {f"a{n}": {"multipleOf": of} for n, of in enumerate([0.01, 5, 60, 1e9, 0.25, 1000])}})
    _, text = drawn(schema({"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 10**6}), 1)
    assert int(text) % 7 == 0


def test_a_form_that_becomes_too_much_work_fails_its_sequence_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    form = schema(PERSON)
    monkeypatch.setattr(states, "limits", lambda: llguidance.LLParserLimits(initial_lexer_fuel=1))
    with pytest.raises(GrammarFailed):
        GrammarState(VOCABULARY, form).allowed()


def test_a_vocabulary_must_be_able_to_end() -> None:
    with pytest.raises(ValueError, match="without a token that ends"):
        GrammarVocabulary(TOKENS, [], [], lambda text: list(text.encode()))

"""Chat templates: what models expect of them, and that none of them takes the process along."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="chat templates need the extra llm")

from headway.llm.text.limits import Budget, BudgetSpent, Limits
from headway.llm.text.template import ChatTemplate, TemplateError

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SMALL = Limits(passes=2000, size=10_000, seconds=1e9)


def rendered(source: str, *messages: dict[str, Any], limits: Limits = SMALL, **values: Any) -> str:
    template = ChatTemplate({"default": source}, {"bos_token": "<s>"}, limits, lambda: datetime(2026, 3, 4))
    return template.render(list(messages), **values)


def test_smollm2_s_own() -> None:
    hello = {"role": "user", "content": "hi {{ 1 }}"}
    opening = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    asked = "<|im_start|>user\nhi {{ 1 }}<|im_end|>\n"
    assert rendered(SMOLLM2, hello) == opening + asked + "<|im_start|>assistant\n"
    assert rendered(SMOLLM2, hello, add_generation_prompt=False) == opening + asked
    system = {"role": "system", "content": "Be brief."}
    brief = "<|im_start|>system\nBe brief.<|im_end|>\n"
    assert rendered(SMOLLM2, system, hello, add_generation_prompt=False) == brief + asked
    developer = {"role": "developer", "content": "Be brief."}
    assert rendered(SMOLLM2, developer, hello, add_generation_prompt=False) == brief + asked


def test_what_templates_expect_to_find() -> None:
    assert rendered("{{ bos_token }}{{ {'é': '<a>'} | tojson }}") == '<s>{"é": "<a>"}'
    assert rendered("{{ [1] | tojson(indent=1) }}") == "[\n 1\n]"
    assert rendered("{{ strftime_now('%d %b %Y') }}") == "04 Mar 2026"
    assert rendered("{% generation %}a{{ 1 }}{% endgeneration %}") == "a1"
    assert rendered("{% for i in range(5) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"
    assert (
        rendered("{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}")
        == "3"
    )
    assert rendered("  {% if true %}\n  x\n  {% endif %}\n") == "  x\n"
    assert rendered("{{ 'a' ~ 1 ~ none }}{{ ['a', 'b'] | join('-') }}{{ 'aXa'.replace('X', 'yy') }}") == "a1Nonea-bayya"
    assert rendered("{{ '%s-%05d' % ('a', 3) }}{{ '{:>4}'.format('b') }}") == "a-00003   b"
    assert rendered("{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(1) }}{{ loopy is defined }}") == "[1]False"
    assert rendered(
        "{% for m in messages %}{{ loop.index }}{{ loop.last }}{{ m.content | trim }}{% endfor %}", {"content": " x "}
    ) == ("1Truex")


def test_tools_are_seen_and_have_a_template_of_their_own_where_there_is_one() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert rendered("{{ tools | tojson if tools else 'none' }}", tools=tools) == (
        '[{"type": "function", "function": {"name": "f"}}]'
    )
    assert rendered("{{ tools | tojson if tools else 'none' }}", tools=[]) == "none"
    both = ChatTemplate({"default": "plain", "tool_use": "with"}, {})
    assert (both.render([]), both.render([], tools=tools)) == ("plain", "with")


def test_a_client_s_own_values_are_seen_but_not_instead_of_the_messages() -> None:
    assert rendered("{{ enable_thinking }}", enable_thinking=False) == "False"
    with pytest.raises(TemplateError, match="documents is not for chat_template_kwargs"):
        rendered("x", documents=[])


def test_text_in_parts_is_one_text_and_other_parts_are_refused() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "c", {"type": "refusal", "refusal": "d"}]
    source = "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert rendered(source, {"role": "user", "content": parts}) == "a\nb\nc\nd"
    for part, kind in (
        ({"type": "image_url", "image_url": {}}, "'image_url'"),
        (7, "None"),
        ({"type": "text"}, "'text'"),
    ):
        with pytest.raises(TemplateError, match=rf"messages\[1\]\.content has a part of type {kind}"):
            rendered(source, {"content": "x"}, {"content": [part]})


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "the chat template refuses it: roles must alternate"),
        ("a\n{{ messages[0].content + 'x' }}", "fails in line 2: UndefinedError"),
        ("{{ nothing.x }}", "'nothing' is undefined"),
        ("{{ 'x' + 1 }}", "TypeError"),
        ("{{ messages.__class__ }}{{ messages.__class__.__mro__ }}", "unsafe|undefined"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ raise_exception('x' * 5000) }}", r"x{20} \.\.\.$"),
        ("{% include 'other' %}", "fails"),
    ],
)
def test_what_fails_says_what_was_wrong_and_is_the_messages_fault(source: str, said: str) -> None:
    with pytest.raises(TemplateError, match=said) as raised:
        rendered(source)
    assert not raised.value.of_model
    assert len(str(raised.value)) < 600


def test_a_template_that_is_not_well_formed_says_where_when_it_is_loaded() -> None:
    with pytest.raises(TemplateError, match="chat template 'default', line 2: ") as raised:
        ChatTemplate({"default": "a\n{% for %}"}, {})
    assert raised.value.of_model
    with pytest.raises(TemplateError, match="nested too deeply"):
        ChatTemplate({"default": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"}, {})
    assert not ChatTemplate({}, {})
    with pytest.raises(TemplateError, match="has no chat template"):
        ChatTemplate({}, {}).render([])


HOSTILE = [
    "{% for i in range(9999) %}{% endfor %}",
    "{% for i in range(99) %}{% for j in range(99) %}{% endfor %}{% endfor %}",
    "{% for x in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth < 30 }}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ 'a' * 10 ** 10 }}",
    "{{ ([0] * 9999) * 9999 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{{ 2 ** 99999 }}",
    "{% set ns = namespace(n=3) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "{% set ns = namespace(s='aa') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "{% set ns = namespace(s='aa') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% set ns = namespace(s='aa') %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}",
    "{% set ns = namespace(s='aa') %}{% for i in range(99) %}{% set ns.s = ''.join([ns.s, ns.s]) %}{% endfor %}",
    "{% set ns = namespace(s='aa') %}{% for i in range(99) %}{% set ns.s = ns.s.replace('a', 'aa') %}{% endfor %}",
    "{% set ns = namespace(s='aa') %}{% for i in range(99) %}{% set ns.s = ns.s | replace('a', 'aa') %}{% endfor %}",
    "{{ ('a' * 9000) | replace('a', 'b' * 9000) }}",
    "{{ ('a' * 9000).replace('', 'b' * 9000) }}",
    "{{ ('a' * 9000) | list | join('b' * 9000) }}",
    "{{ ('b' * 9000).join(('a' * 9000) | list) }}",
    "{{ 'a'.ljust(1000000000) }}{{ 'a'.zfill(1000000000) }}",
    "{{ 'a' | center(1000000000) }}",
    "{{ 'a\nb' | indent(1000000000) }}",
    "{{ ('a\n' * 900) | indent('b' * 9000) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 1000000000) }}",
    "{{ ('\t' * 900).expandtabs(1000000) }}",
    "{{ [1] | tojson(indent=1000000000) }}",
    "{{ [1] | batch(1000000000, 'x') | list }}",
    "{% for i in range(999) %}{{ 'x' * 100 }}{% endfor %}",
    "{% for i in range(500) %}{% set x = 'x' * 9999 %}{% endfor %}",
]


@pytest.mark.parametrize("source", HOSTILE)
def test_a_template_that_takes_too_much_is_stopped_and_that_is_the_model_s_fault(source: str) -> None:
    with pytest.raises(TemplateError, match="the chat template was stopped") as raised:
        rendered(source)
    assert raised.value.of_model
    assert rendered("fine") == "fine"


def test_time_is_looked_at_while_it_loops() -> None:
    now = iter(range(1000))
    budget = Budget(Limits(seconds=3), lambda: float(next(now)))
    with budget, pytest.raises(BudgetSpent, match="longer than 3 s"):
        for _ in range(256 * 5):
            budget.tick()


def test_long_conversations_are_well_within_the_usual_limits() -> None:
    messages = [{"role": "user", "content": "x" * 400}] * 2000
    assert len(rendered(SMOLLM2, *messages, limits=Limits())) > 800_000


def test_a_message_that_looks_like_a_template_is_text() -> None:
    assert "{{ 7 * 7 }}" in rendered(SMOLLM2, {"role": "user", "content": "{{ 7 * 7 }}{% for %}"})

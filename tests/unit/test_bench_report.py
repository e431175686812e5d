"""Percentiles, texts of a given length, and the request's bytes."""

from __future__ import annotations

import json
import random
from array import array
from urllib.parse import urlsplit

import pytest

from headway.bench.bodies import WORDS, embeddings_body, encode_request, infer_body
from headway.bench.connection import error_code
from headway.bench.lengths import parse_lengths
from headway.bench.load import Results
from headway.bench.report import distribution, percentile, summarise, table, warning
from headway.bench.run import Measured

MS = 1_000_000


def measured(latencies: list[int], errors: dict[str, int] | None = None, cpu: float = 0.1) -> Measured:
    return Measured(Results(array("q", latencies), array("q"), errors or {}, len(latencies)), 2.0, cpu)


def test_a_percentile_is_the_smallest_value_that_the_share_does_not_exceed():
    hundred = list(range(1, 101))
    assert [percentile(hundred, q) for q in (0.5, 0.9, 0.95, 0.99, 0.999)] == [50, 90, 95, 99, 100]
    assert percentile([7], 0.5) == percentile([7], 0.999) == 7
    assert percentile(list(range(1, 21)), 0.95) == 19
    assert percentile(list(range(1, 1001)), 0.999) == 999


def test_a_distribution_is_in_milliseconds_and_does_not_depend_on_the_order():
    figures = distribution([3 * MS, 1 * MS, 2 * MS])
    assert figures == {"mean": 2, "p50": 2, "p90": 3, "p95": 3, "p99": 3, "p99.9": 3, "max": 3}


def test_nothing_answered_is_reported_as_nothing_rather_than_as_zero_latency():
    summary = summarise(measured([], {"connection_lost": 2}))
    assert summary["latency_ms"] == {}
    assert summary["ok"] == 0 and summary["failed"] == 2
    assert "2 x connection_lost" in table(summary)


def test_throughput_counts_good_answers_only():
    assert summarise(measured([MS] * 10, {"503 queue_full": 90}))["ok_per_s"] == 5.0


def test_a_client_that_is_itself_the_bottleneck_says_so():
    assert warning(summarise(measured([MS], cpu=0.79))) == ""
    assert "81 % of a core" in warning(summarise(measured([MS], cpu=0.81)))


def test_a_summary_is_json():
    json.dumps(summarise(measured([MS, 2 * MS], {"timeout": 1})))


def test_of_each_error_the_first_body_is_shown_on_one_line_and_not_without_end():
    run = measured([], {"400 invalid_request": 3, "timeout": 1})
    run.results.examples["400 invalid_request"] = b'{"error":\n "no such input"}' + 500 * b"x"
    shown = table(summarise(run)).splitlines()
    (line,) = [line for line in shown if "400 invalid_request" in line]
    assert line.startswith('error        3 x 400 invalid_request, such as: {"error": "no such input"}x')
    assert line.endswith(" ...") and len(line) < 500
    assert "error        1 x timeout" in shown


@pytest.mark.parametrize("spec", ["lognormal:44:256", "lognormal:44:256:0.5", "fixed:44", "choices:8,32,256"])
def test_lengths_stay_within_what_the_spec_says(spec):
    sample, rng = parse_lengths(spec), random.Random(3)
    sizes = [sample(rng) for _ in range(2000)]
    assert min(sizes) >= 3 and max(sizes) <= 256
    if spec.startswith("lognormal"):
        assert 40 <= sorted(sizes)[1000] <= 48


@pytest.mark.parametrize("spec", ["", "fixed", "fixed:two", "lognormal:44", "choices:4,,5", "fixed:1", "uniform:1:2"])
def test_a_spec_of_lengths_that_makes_no_sense_is_refused_by_name(spec):
    with pytest.raises(ValueError, match="lengths"):
        parse_lengths(spec)


def test_a_text_of_n_tokens_has_n_words_less_the_two_marks():
    body = json.loads(embeddings_body("m", parse_lengths("fixed:10"), 3, random.Random(0)))
    assert body["model"] == "m"
    assert [len(text.split()) for text in body["input"]] == [8, 8, 8]
    assert len(set(WORDS)) == len(WORDS)


def test_one_text_is_sent_as_a_string():
    assert isinstance(json.loads(embeddings_body("m", parse_lengths("fixed:5"), 1, random.Random(0)))["input"], str)


def test_token_ids_are_sent_with_a_mask_and_types_of_the_same_shape():
    body = json.loads(infer_body(parse_lengths("fixed:7"), 2, random.Random(0)))
    assert [tensor["name"] for tensor in body["inputs"]] == ["input_ids", "attention_mask", "token_type_ids"]
    for tensor in body["inputs"]:
        assert tensor["shape"] == [2, 7] and len(tensor["data"]) == 14 and tensor["datatype"] == "INT64"


def test_a_header_that_is_named_replaces_the_clients_own():
    wire = encode_request(urlsplit("http://h:1/p?q=1"), b"{}", ["content-type: text/plain", "x-tenant: a"])
    assert wire == (
        b"POST /p?q=1 HTTP/1.1\r\nHost: h:1\r\ncontent-type: text/plain\r\nx-tenant: a\r\nContent-Length: 2\r\n\r\n{}"
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"error": "full", "code": "queue_full"}', "queue_full"),
        (b'{"error": {"message": "full", "code": "queue_full"}}', "queue_full"),
        (b"<html>", ""),
        (b"[1]", ""),
        (b"", ""),
    ],
)
def test_an_errors_code_is_read_from_either_shape_of_body(body, code):
    assert error_code(body) == code

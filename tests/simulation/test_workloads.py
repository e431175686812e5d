"""Arrival processes, service times, the report."""

from __future__ import annotations

from itertools import islice
from random import Random
from statistics import mean, median, stdev

import pytest

from headway.core.units import SECOND, ms, seconds
from headway.sim import costs, workloads
from headway.sim.report import as_table, percentile, summarise
from headway.sim.scenario import KEY, Scenario, simulate
from headway.sim.workloads import Mix, open_loop, poisson


@pytest.mark.parametrize(
    ("gaps", "cv"),
    [
        (lambda rng: workloads.poisson(rng, 100), 1),
        (lambda rng: workloads.bursty(rng, 100, cv=4), 4),
        (lambda rng: workloads.on_off(rng, 100, seconds(0.1), seconds(0.3)), 6.7),
    ],
    ids=["poisson", "gamma", "on-off"],
)
def test_arrivals_have_the_rate_and_the_burstiness_that_was_asked_for(gaps, cv) -> None:  # type: ignore[no-untyped-def]
    drawn = list(islice(gaps(Random(7)), 40_000))
    assert mean(drawn) == pytest.approx(SECOND / 100, rel=0.1)
    assert stdev(drawn) / mean(drawn) == pytest.approx(cv, rel=0.35)


def test_lengths_have_a_median_of_44_and_end_at_256() -> None:
    rng = Random(3)
    lengths = [workloads.lognormal_length(rng) for _ in range(5000)]
    assert 42 <= median(lengths) <= 46
    assert max(lengths) == 256 and min(lengths) >= 1


def test_the_cpu_cost_is_linear_in_padded_tokens_and_less_in_company() -> None:
    assert costs.cpu(1, 100) == ms(0.4 + 17.5)
    assert costs.cpu(2, 100) == ms(0.4 + 2 * 17.5 * 0.86)


def test_with_fixed_kernels_two_rows_cost_as_much_as_eight() -> None:
    assert costs.kernels(2, 64) == costs.kernels(8, 64) < costs.kernels(9, 64)


def test_on_a_grid_every_service_time_is_a_multiple_of_it() -> None:
    assert {costs.on_grid(costs.cpu, ms(5))(rows, 7) % ms(5) for rows in range(1, 9)} == {0}


def test_noise_keeps_the_median() -> None:
    noisy = costs.noisy(costs.gpu, Random(5), 0.3)
    assert median(noisy(4, 50) for _ in range(4001)) == pytest.approx(costs.gpu(4, 50), rel=0.05)


def test_percentiles_are_values_that_occurred() -> None:
    assert [percentile(range(1, 101), share) for share in (0.5, 0.9, 0.99, 1)] == [50, 90, 99, 100]
    assert percentile([7], 0.01) == 7
    assert summarise([]).count == 0


def test_one_worker_that_is_never_asked_twice_at_once_shows_its_own_service_time() -> None:
    mix = Mix((KEY,))
    arrivals = (mix.arrival(Random(n), at=seconds(n), length=100) for n in range(10))
    report = simulate(Scenario(arrivals))
    assert report.outcomes == {"completed": 10}
    assert report.latency.p50_ms == report.latency.p99_ms == 17.9
    assert report.batch_sizes == {1: 10} and report.reasons == {"idle": 10}
    assert report.padding_waste == 0


def test_the_report_counts_what_was_padded_and_how_busy_the_workers_were() -> None:
    report = simulate(Scenario(open_loop(Random(1), poisson(Random(2), 5000), Mix((KEY,)), 500), cost=costs.gpu))
    assert report.utilisation > 0.9
    assert 0 < report.padding_waste < 1
    assert sum(rows * count for rows, count in report.batch_sizes.items()) == 500
    assert sum(report.reasons.values()) == sum(report.batch_sizes.values())
    assert "500 in" in as_table(report)


def test_a_closed_loop_has_at_most_one_request_per_client_under_way() -> None:
    arrivals = open_loop(Random(1), poisson(Random(2), 1), Mix((KEY,)), 200)
    report = simulate(Scenario(arrivals, clients=4, cost=costs.launch))
    assert report.outcomes == {"completed": 200}
    assert max(report.batch_sizes) <= 4


def test_the_same_seed_gives_the_same_report() -> None:
    def outcome() -> tuple[object, ...]:
        report = simulate(Scenario(open_loop(Random(1), poisson(Random(2), 90), Mix((KEY,)), 300)))
        return report.latency, report.batch_sizes, report.duration_s

    assert outcome() == outcome()

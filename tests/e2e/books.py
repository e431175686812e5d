"""What /metrics says of requests, batches and queues."""

from __future__ import annotations

from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.client import ANSWERED, ask


class Books:
    """Sums over one scrape."""

    def __init__(self, page: str, answered: Counter[str]) -> None:
        """answered: what the test's own client had been told before the page was made, by class of outcome."""
        self._answered = answered
        self._samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]

    def total(self, name: str, **labels: str) -> int:
        return round(sum(s.value for s in self._samples if s.name == name and labels.items() <= s.labels.items()))

    def outcomes(self, **labels: str) -> Counter[str]:
        """Requests by class of outcome."""
        found: Counter[str] = Counter()
        for sample in self._samples:
            if sample.name == "headway_requests_total" and labels.items() <= sample.labels.items():
                found[sample.labels["outcome"]] += round(sample.value)
        return +found

    def in_flight(self, **labels: str) -> int:
        return self.total("headway_requests_in_flight", **labels)

    def waiting(self, model: str) -> int:
        return self.total("headway_queue_depth_requests", model=model)

    def assert_conserved(self) -> None:
        """received = completed + failed + refused + expired + cancelled + in flight; clients saw no more than that."""
        assert self.total("headway_requests_received_total") == self.outcomes().total() + self.in_flight()
        assert self._answered <= self.outcomes(), f"clients were told {self._answered}, counted is {self.outcomes()}"

    def assert_just_what_clients_saw(self) -> None:
        """For a server that nobody but `ask` has talked to, when all have their answers."""
        assert self.in_flight() == 0
        assert self.outcomes() == self._answered
        assert self.total("headway_requests_received_total") == self._answered.total()


async def books(address: str) -> Books:
    answered = Counter(ANSWERED[address])
    reply = await ask(address, "/metrics")
    assert reply.status == 200
    found = Books(reply.body.decode(), answered)
    found.assert_conserved()
    return found

"""Bugs of the fair order, planted as in `planted`."""

from __future__ import annotations

from tests.canary.planted import Canary

FAIR = (
    Canary(
        "who returns keeps its old counter",
        "fairness",
        "        if account.counter < level:\n",
        "        if account.counter < 0:\n",
    ),
    Canary(
        "who returns is not lifted to those who wait",
        "fairness",
        "return self.virtual_time if least is None else max(self.virtual_time, least.settled)",
        "return self.virtual_time",
    ),
    Canary(
        "who returns is lifted to those who wait alone",
        "fairness",
        "return self.virtual_time if least is None else max(self.virtual_time, least.settled)",
        "return self.virtual_time if least is None else least.settled",
    ),
    Canary(
        "what runs counts when who returns is lifted",
        "fairness",
        "        return self.counter - self.pending\n",
        "        return self.counter\n",
    ),
    Canary(
        "who owes is forgotten",
        "fairness",
        "        elif account.counter <= self.virtual_time:\n",
        "        elif account.counter >= 0:\n",
    ),
    Canary(
        "who is promoted moves virtual time on",
        "dispatch",
        "pool.fair.served(leader.account)",
        "pool.fair.served(tenant.account)",
    ),
    Canary(
        "virtual time stands still",
        "fairness",
        "            self.virtual_time = account.counter\n",
        "            pass\n",
    ),
    Canary(
        "a near deadline goes first however far its tenant is ahead",
        "pool",
        "if account.counter <= leader.account.counter + longest",
        "if account.counter <= leader.account.counter + 1_000 * longest",
    ),
    Canary(
        "who comes along for nothing is charged",
        "batching",
        "batch.add(part, tenant, pays=False)",
        "batch.add(part, tenant)",
    ),
    Canary(
        "a batch that takes longer than predicted is not corrected",
        "settling",
        "    error = (duration - batch.predicted) / batch.predicted\n",
        "    error = 0.0\n",
    ),
    Canary(
        "a batch that dies with its worker stays charged",
        "settling",
        "        pool.device.correct(account, -amount * account.weight)\n",
        "        pass\n",
    ),
    Canary(
        "what a dead batch was to cost stays unsettled",
        "settling",
        "        account.pending -= amount\n        pool.device.correct(",
        "        pool.device.correct(",
    ),
    Canary(
        "what a batch was to cost stays unsettled",
        "settling",
        "        account.pending -= amount\n        correct(account, amount",
        "        correct(account, amount",
    ),
    Canary(
        "who has joined a batch is as far behind as before",
        "batching",
        "heapreplace(self._tentative, (counter + self._share(part, tenant), order, tenant))",
        "heapreplace(self._tentative, (counter, order, tenant))",
    ),
    Canary(
        "joiners come from the head's tenant as long as it has any",
        "batching",
        "if following is not None and (not self._tentative or following.account.counter <= self._tentative[0][0]):\n"
        "                self._consider(following, following.account.counter)\n"
        "                continue\n"
        "            if not self._tentative:\n"
        "                return None\n",
        "if following is not None and not self._tentative:\n"
        "                self._consider(following, following.account.counter)\n"
        "                continue\n"
        "            if not self._tentative:\n"
        "                return None\n",
    ),
    Canary(
        "the head does not count for its tenant's turn within the batch",
        "batching",
        "self._consider(owner, owner.account.counter + shares[tenant])",
        "self._consider(owner, owner.account.counter)",
    ),
    Canary(
        "a batch is split by heads",
        "fairness",
        "    solo = [cost.median(part.rows, part.length) for part in members]\n",
        "    solo = [1 for part in members]\n",
    ),
    Canary(
        "each pays for the batch what it would have taken alone",
        "fairness",
        "owner.reserve(predicted * alone / total)",
        "owner.reserve(alone)",
    ),
    Canary(
        "weights are ignored when a batch is charged",
        "fairness",
        "amount = int(service / self.weight)",
        "amount = int(service)",
    ),
    Canary(
        "weights are ignored within a batch",
        "batching",
        "return int(self._cost.median(part.rows, part.length) / tenant.account.weight)",
        "return int(self._cost.median(part.rows, part.length))",
    ),
    Canary(
        "a weight that changes does not hold",
        "shares",
        "            account.weight = weight\n            self.joins(account)\n        account.weight = weight\n",
        "            self.joins(account)\n",
    ),
    Canary(
        "the turn goes by arrival",
        "queue",
        "(queue.account.counter, head.due, head.seq)",
        "(0, head.due, head.seq)",
    ),
    Canary(
        "within a tenant the latest leads",
        "lazy",
        "heappush(heap, (at, part.seq, part))",
        "heappush(heap, (at, -part.seq, part))",
    ),
)

"""A language model for tests: what it is to the core, and an engine of it that is small enough to be full."""

from __future__ import annotations

from headway.core.ids import BatchKey, Measurement, VersionId
from headway.core.units import ms, us
from headway.llm.plan.policy import PlanPolicy, Prices
from headway.llm.plan.step_time import Coefficients
from headway.sim.engines import EngineModel

LM = VersionId("lm", 1)
KEY = BatchKey("lm", 1, "stream")
STOP = 7
SEQUENCES, BLOCKS, SIZE = 4, 24, 4
MODEL = EngineModel(
    PlanPolicy(
        max_sequences=SEQUENCES,
        max_step_tokens=24,
        max_context=80,
        tile=1,
        target_itl=ms(20),
        prices=Prices(us(60), us(400)),
    ),
    BLOCKS,
    SIZE,
    Coefficients(step=ms(2), prefill=us(60), decode=us(300), context=20.0, pairs=10.0),
)
COST = tuple(Measurement(1, length, us(60) * length) for length in (1, 16, 64))

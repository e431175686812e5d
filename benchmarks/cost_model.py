"""How far the cost model is from what batches take on this machine, beside plainer forms of it.

    python benchmarks/cost_model.py [--quick] [--rounds 8] [--device NAME] [--json FILE]

Four devices, each a model in the worker's own executor: MiniLM with one and with two compute threads; a tiny model,
whose batches cost little more than the call; and one whose kernels have fixed sizes, a small encoder whose rows
are filled up to 1, 8 or 32, as some compiled models do.

A round is the worker's own warm-up, then one run of each of many sizes that the warm-up leaves out, in an order drawn
anew: the machine's drift hits all sizes alike. What a size takes is the median of its runs. From the same
measurements, with the same least squares, come

    a sum of growing terms   the cost model
    affine                   a + b x rows + c x tokens
    with attention           the same + d x rows x length^2
    with kernels             the cost model's terms + at each of its steps in rows another, x length
    nearest size             no form: what the nearest size took that was run

`warm-up alone`: told of one warm-up; the median over the warm-ups of all rounds. `with half the runs`: told of the
first warm-up and, one by one as in service, of every other round; judged by the rest. There the nearest size is the
very size, so its error is the noise that no form can foresee. `shape`: a factor common to all sizes taken out, which is
the machine's speed in another minute: the cost model's scale follows it, the other forms have none.
`leans`: the cost model's predictions after a warm-up, by rows, above (+) or below (-) what was measured. `in service`:
the cost model told of a warm-up and of the first half of the rounds, then of each run of the rest after it was
judged by it: how many took at most the predicted upper run time (goal 95 %), and how far the median was from a run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter_ns
from typing import Any, cast

import numpy as np
import onnx
from lab.calibration import calibrated, direct
from lab.figures import markdown
from lab.forms import (
    OF_KERNELS,
    Predict,
    Size,
    affine,
    attention,
    errors,
    fitted,
    in_service,
    kernels,
    looked_up,
    medians,
    modelled,
)
from lab.loads import MODEL
from onnx import TensorProto, helper, numpy_helper

from headway.cli import tiny_onnx
from headway.config.load import load_model_settings
from headway.core.ids import Measurement
from headway.worker.executor import BatchExecutor, Durations, LoadContext
from headway.worker.executors import create
from headway.worker.warm_up import grid, made_up

OURS = "a sum of growing terms"
ROWS = (1, 2, 3, 5, 6, 8, 9, 12, 16, 20, 24, 32)
LENGTHS = (8, 12, 20, 48, 64, 96, 128, 192, 256)
MINILM_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
MINILM_LENGTHS = (12, 20, 32, 48, 64, 96, 160, 224)
MINILM_TOKENS = 1024
"""About where its warm-up ends, for a batch that takes a quarter of a second is its last."""
QUICK_TOKENS = 256
TINY_ROUNDS = 16
STEPPED_ROUNDS = 3
"""So many times the rounds of MiniLM, since a round takes so much less."""
BANDS = ((1, 1), (2, 8), (9, 32))
"""Rows, from and to, for which it is told how the cost model leans."""

TINY_WIDTH = 4
WIDTH = 128
VOCABULARY = 64

STEPPED = f"""
import numpy as np
import onnxruntime

SIZES = (1, 8, 32)


class Model:
    inputs = {{"ids": ("INT64", [-1, -1])}}
    outputs = {{"sums": ("FP32", [-1, {WIDTH}])}}
    warm_up = True

    def load(self, context):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = context.threads
        self.session = onnxruntime.InferenceSession(
            context.path + "/encoder.onnx", options, providers=["CPUExecutionProvider"]
        )

    def execute(self, requests):
        length = max(request.length for request in requests)
        ids = np.zeros((next(size for size in SIZES if size >= len(requests)), length), np.int64)
        for row, request in enumerate(requests):
            ids[row, : request.length] = request["ids"][0]
        [sums] = self.session.run(None, {{"ids": ids}})
        return [{{"sums": sums[row : row + 1]}} for row in range(len(requests))]
"""

STEPPED_SETTINGS = "max_length = 256\n\n[inputs.ids]\npad_axis = 1\n"


# -- devices ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Device:
    """warm_up: what the worker does before it is ready.  run: one batch, as the warm-up times it.

    sizes: those that are measured; none is in the warm-up grid.
    """

    name: str
    warm_up: Callable[[], list[Measurement]]
    run: Callable[[int, int], None]
    sizes: list[Size]
    rounds: int = 1


def loaded(name: str, kind: str, folder: Path, threads: int, wanted: Sequence[Size], rounds: int = 1) -> Device:
    """folder: of the model, with version 1.  rounds: how many for each that is asked for."""
    settings, problems = load_model_settings(folder / "model.toml", {})
    if settings is None:
        raise RuntimeError("\n".join(map(str, problems)))
    executor = cast(BatchExecutor, create(kind))
    meta = executor.load(LoadContext(folder.name, 1, str(folder / "1"), "cpu", threads, settings))
    rows, lengths = grid(settings, meta)

    def run(rows: int, length: int) -> None:
        executor.execute(made_up(meta.inputs, rows, length, 1), Durations())

    def warm_up() -> list[Measurement]:
        return executor.warm_up(rows, lengths, settings.warm_up.repeats)

    return Device(name, warm_up, run, left_out(wanted, rows, lengths), rounds)


def left_out(wanted: Sequence[Size], rows: Sequence[int], lengths: Sequence[int]) -> list[Size]:
    """Sizes that a warm-up of these rows and lengths does not run."""
    return [size for size in wanted if size[0] not in rows or size[1] not in lengths]


def minilm(threads: int, models: Path, quick: bool) -> Device:
    most = QUICK_TOKENS if quick else MINILM_TOKENS
    wanted = [size for size in product(MINILM_ROWS, MINILM_LENGTHS) if size[0] * size[1] <= most]
    return loaded(f"MiniLM, {threads} thread{'s' * (threads > 1)}", "onnx", models / MODEL, threads, wanted)


def tiny(directory: Path) -> Device:
    folder = directory / "tiny"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.onnx").write_bytes(tiny_onnx.affine(2.0, 1.0, TINY_WIDTH))
    return loaded("tiny", "onnx", folder, 1, [(rows, 1) for rows in range(1, 33)], TINY_ROUNDS)


def stepped(directory: Path) -> Device:
    folder = directory / "stepped"
    (folder / "1").mkdir(parents=True)
    (folder / "model.toml").write_text(STEPPED_SETTINGS)
    (folder / "1" / "model.py").write_text(STEPPED)
    (folder / "1" / "encoder.onnx").write_bytes(encoder())
    wanted = list(product(ROWS, LENGTHS))
    return loaded("rows filled up to 1, 8, 32", "python", folder, 1, wanted, STEPPED_ROUNDS)


def encoder() -> bytes:
    """Token ids [rows, length] -> [rows, WIDTH]: an embedding, two matrix products, the sum over the length."""
    rng = np.random.default_rng(1)
    shapes = {"table": (VOCABULARY, WIDTH), "first": (WIDTH, WIDTH), "second": (WIDTH, WIDTH)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name) for name, shape in shapes.items()
    ]
    weights.append(numpy_helper.from_array(np.array([1], np.int64), "axis"))
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["embedded"]),
        helper.make_node("MatMul", ["embedded", "first"], ["product"]),
        helper.make_node("Relu", ["product"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "second"], ["tokens"]),
        helper.make_node("ReduceSum", ["tokens", "axis"], ["sums"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows", "length"])],
        [helper.make_tensor_value_info("sums", TensorProto.FLOAT, ["rows", WIDTH])],
        weights,
    )
    opset = helper.make_opsetid("", tiny_onnx.OPSET)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[opset], ir_version=tiny_onnx.IR_VERSION)
    return bytes(model.SerializeToString())


# -- measuring -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    warm_up: list[Measurement]
    runs: list[Measurement]


def measured(device: Device, rounds: int, rng: Random) -> list[Round]:
    found = []
    for _ in range(rounds * device.rounds):
        warm_up = device.warm_up()
        order = rng.sample(device.sizes, len(device.sizes))
        found.append(Round(warm_up, [Measurement(*size, timed(device.run, size)) for size in order]))
    return found


def timed(run: Callable[[int, int], None], size: Size) -> int:
    began = perf_counter_ns()
    run(*size)
    return perf_counter_ns() - began


# -- judging ---------------------------------------------------------------------------------------------


def forms(warm_up: Sequence[Measurement], runs: Sequence[Measurement] = ()) -> dict[str, Predict]:
    """Each of the forms, told of these. The cost model forgets, the others know all runs alike."""
    both = [*warm_up, *runs]
    return {
        OURS: modelled(warm_up, runs).median,
        "affine": fitted(affine, both),
        "with attention": fitted(attention, both),
        "with kernels": fitted(kernels, both, OF_KERNELS),
        "nearest size": looked_up(both),
    }


def judged(rounds: Sequence[Round]) -> dict[str, Any]:
    """alone, told: form -> its errors; in_service: see lab.forms.  leans: of the cost model alone, by band of rows.
    noise: median distance of a single run from the median of its size."""
    truth = medians(runs_of(rounds))
    alone = [forms(each.warm_up) for each in rounds]
    told, rest = forms(rounds[0].warm_up, runs_of(rounds[::2])), medians(runs_of(rounds[1::2]))
    half = len(rounds) // 2
    model = modelled(rounds[0].warm_up, runs_of(rounds[:half]))
    return {
        "alone": {name: middle([errors(found[name], truth) for found in alone]) for name in told},
        "told": {name: errors(predict, rest) for name, predict in told.items()},
        "leans": middle([leaning(found[OURS], truth) for found in alone]),
        "in_service": in_service(model, runs_of(rounds[half:])),
        "noise": median(abs(m.duration / truth[m.rows, m.length] - 1) for m in runs_of(rounds)),
    }


def runs_of(rounds: Sequence[Round]) -> list[Measurement]:
    return [m for each in rounds for m in each.runs]


def leaning(predict: Predict, truth: dict[Size, float]) -> dict[str, float]:
    """Median of prediction / truth - 1 in each band of rows that has sizes."""
    found = {}
    for low, high in BANDS:
        ratios = [predict(*size) / took - 1 for size, took in truth.items() if low <= size[0] <= high]
        if ratios:
            found[f"{low} to {high} rows" if high > low else "1 row"] = median(ratios)
    return found


def middle(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: median(each[key] for each in found) for key in found[0]}


def about(device: Device, rounds: Sequence[Round], machine: list[dict[str, float]]) -> dict[str, Any]:
    """measured: the raw run times, [rows, length, nanoseconds], of each round's warm-up and runs."""
    return {
        "device": device.name,
        "warm_up_sizes": len(medians(rounds[0].warm_up)),
        "sizes": len(device.sizes),
        "rounds": len(rounds),
        "machine": machine,
        "measured": [asdict(each) for each in rounds],
    }


def table(results: Sequence[dict[str, Any]]) -> str:
    """Per cent: median, nine of ten."""
    header = ["device", "form", "warm-up alone", "shape", "with half the runs", "shape"]
    lines = []
    for result in results:
        for name in result["alone"]:
            alone, told = result["alone"][name], result["told"][name]
            cells = [pair(found, by) for found in (alone, told) for by in ("", "shape_")]
            lines.append([result["device"] if name == OURS else "", name, *cells])
    return markdown(header, lines)


def pair(found: dict[str, float], by: str) -> str:
    return f"{100 * found[by + 'p50']:.1f}, {100 * found[by + 'p90']:.1f}"


def described(result: dict[str, Any]) -> str:
    low, high = (f(found["python_ns"] for found in result["machine"]) for f in (min, max))
    service = result["in_service"]
    leans = ", ".join(f"{band} {off:+.0%}" for band, off in result["leans"].items())
    return (
        f"{result['device']}: {result['warm_up_sizes']} sizes to warm up, {result['sizes']} others, "
        f"{result['rounds']} rounds; a run is {result['noise']:.1%} from its size's median; "
        f"in service within upper {service['within_upper']:.1%}, off by {pair(service, '')} %; "
        f"leans {leans}; Python loop {low:.0f} to {high:.0f} ns"
    )


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def devices(models: Path, quick: bool) -> Iterator[dict[str, Callable[[], Device]]]:
    """Each is loaded when it is its turn."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        yield {
            "minilm": lambda: minilm(1, models, quick),
            "minilm-2": lambda: minilm(2, models, quick),
            "tiny": lambda: tiny(directory),
            "stepped": lambda: stepped(directory),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=Path(".headway/models"), help="repository with the model")
    parser.add_argument("--rounds", type=int, default=8, help="runs of each size (default 8)")
    parser.add_argument("--device", action="append", choices=["minilm", "minilm-2", "tiny", "stepped"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="two rounds, small sizes of MiniLM: does it run?")
    options = parser.parse_args()
    if not (options.models / MODEL).is_dir():
        parser.error(f"{options.models} has no {MODEL}: run `make serve` once, it makes the model ready")
    count = 2 if options.quick else options.rounds
    if count < 2:
        parser.error("expected at least 2 rounds: one to learn from, one to judge by")
    results = []
    with direct((options.models / MODEL / "1").resolve(), 1) as plain, devices(options.models, options.quick) as there:
        for key in options.device or there:
            device = there[key]()
            before = plain.calibrate()
            rounds = measured(device, count, Random(1))
            machine = [before, plain.calibrate()]
            say(f"{device.name}: machine before {calibrated(machine[0])}; after {calibrated(machine[1])}")
            results.append({**about(device, rounds, machine), **judged(rounds)})
    print(
        f"`python benchmarks/cost_model.py {' '.join(sys.argv[1:])}`: error in per cent, median and nine of ten sizes\n"
    )
    print(table(results))
    print()
    for result in results:
        print(described(result))
    if options.json is not None:
        options.json.write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()

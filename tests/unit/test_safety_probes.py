"""What the check of batch safety feeds a model, and in which batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from headway.config.settings import Bounds, Embeddings, ModelSettings
from headway.wire.messages import InputMeta
from headway.worker import probe_file, probes, safety_plan
from headway.worker.errors import LoadError
from headway.worker.executor import PartArrays
from headway.worker.safety_plan import Batch

IDS = InputMeta("input_ids", "INT64", (-1, -1), pad_axis=1)
MASK = InputMeta("attention_mask", "INT64", (-1, -1), pad_axis=1)
X = InputMeta("x", "FP32", (-1, 4))
TEXT = ModelSettings(
    embeddings=Embeddings(max_length=40),
    max_length=512,
    bounds={"input_ids": Bounds(minimum=0, maximum=30521), "attention_mask": Bounds(minimum=0, maximum=1)},
)


def test_token_ids_are_spread_over_their_bounds_and_masks_are_ones():
    made = probes.made_up("m/1", [IDS, MASK], TEXT, largest=100)
    ids = np.concatenate([probe.inputs["input_ids"].ravel() for probe in made])
    assert 0 <= ids.min() < 3_000 and 27_000 < ids.max() <= 30521
    assert all(probe.inputs["attention_mask"].min() == 1 for probe in made)
    assert all(probe.inputs["input_ids"].shape == (1, probe.length) for probe in made)


def test_lengths_differ_and_keep_within_the_longest_that_a_request_may_have():
    assert probes.lengths([IDS], TEXT) == (16, 3, 7, 33)
    assert probes.lengths([IDS], ModelSettings(max_length=2)) == (2,)
    assert max(probes.lengths([IDS], ModelSettings())) <= probes.LONGEST_UNKNOWN
    assert probes.lengths([X], TEXT) == (1,)


def test_the_same_model_gets_the_same_probes_and_another_model_others():
    def values(model: str) -> list[Any]:
        return [probe.inputs["x"].tolist() for probe in probes.made_up(model, [X], ModelSettings(), 100)]

    assert values("m/1") == values("m/1")
    assert values("m/1") != values("m/2")
    assert len({str(value) for value in values("m/1")}) == len(values("m/1")), "mixed up rows are noticed"


OPTIONAL_MASK = InputMeta("attention_mask", "INT64", (-1, -1), optional=True, pad_axis=1)


def test_optional_inputs_are_left_out_of_some_and_given_in_others_in_every_length():
    image = InputMeta("image", "FP32", (-1, -1, 3), optional=True)
    made = probes.made_up("m/1", [IDS, OPTIONAL_MASK, image], ModelSettings(), 100)
    given = [(probe.length, tuple(probe.inputs)) for probe in made]
    for length in probes.lengths([IDS], ModelSettings()):
        assert given.count((length, ("input_ids",))) == probes.VALUES
        assert given.count((length, ("input_ids", "attention_mask"))) == probes.VALUES_OF_ALL, "no size for an image"
    masks = [probe.inputs["attention_mask"][0] for probe in made if len(probe.inputs) == 2]
    assert any(mask.all() for mask in masks), "all that is there counts"
    assert all(mask[:-1].all() for mask in masks) and not all(mask[-1] for mask in masks), "or all but the last"


def test_each_length_has_had_its_turn_before_one_has_another():
    sizes = probes.lengths([IDS], ModelSettings())
    made = probes.made_up("m/1", [IDS, OPTIONAL_MASK], ModelSettings(), 100)
    assert [probe.length for probe in made] == [*sizes] * 5
    assert sizes[1:] == tuple(sorted(sizes[1:])), "the short ones first"


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT8", "UINT64", "INT64", "FP16", "BF16", "FP64", "BYTES"])
def test_every_datatype_can_be_made_up(datatype: str):
    (probe, *_) = probes.made_up("m/1", [InputMeta("x", datatype, (-1, 3, 2))], ModelSettings(), 100)
    assert probe.inputs["x"].shape == (1, 3, 2)
    if datatype not in ("BYTES", "BF16"):
        assert probe.inputs["x"].dtype == np.dtype(probes.NUMPY_DTYPES[datatype])


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [(Bounds(minimum=5), 5, np.inf), (Bounds(maximum=-5), -np.inf, -5), (Bounds(minimum=2, maximum=3), 2, 3)],
)
@pytest.mark.parametrize("datatype", ["FP32", "INT32"])
def test_bounds_are_kept(datatype: str, bounds: Bounds, low: float, high: float):
    made = probes.made_up("m/1", [InputMeta("x", datatype, (-1, 50))], ModelSettings(bounds={"x": bounds}), 100)
    values = np.concatenate([probe.inputs["x"] for probe in made])
    assert low <= values.min() and values.max() <= high


# -- batches -----------------------------------------------------------------------------------------

LENGTHS = {0: 16, 1: 16, 2: 16, 3: 3, 4: 3, 5: 3}


def test_pairs_of_both_kinds_come_first_and_both_orders_follow():
    planned = safety_plan.plan(list(LENGTHS), LENGTHS, max_rows=32, max_tokens=0)
    assert planned[:3] == [Batch((3, 0)), Batch((0, 1)), Batch((3, 4))]
    assert {Batch((0, 3)), Batch((1, 0))} <= set(planned)
    assert len(planned) == len(set(planned))


def test_there_are_batches_of_several_sizes_up_to_the_cap_and_one_part_of_several_rows():
    planned = safety_plan.plan(list(LENGTHS), LENGTHS, max_rows=32, max_tokens=0)
    assert {2, 3, 5, 7, 32} <= {len(batch.members) for batch in planned}
    assert any(batch.joined for batch in planned)
    assert all(len({LENGTHS[n] for n in batch.members}) == 1 for batch in planned if batch.joined)


def test_no_batch_is_beyond_the_caps():
    for batch in safety_plan.plan(list(LENGTHS), LENGTHS, max_rows=4, max_tokens=50):
        assert len(batch.members) <= 4
        assert len(batch.members) * max(LENGTHS[n] for n in batch.members) <= 50
    assert safety_plan.plan(list(LENGTHS), LENGTHS, max_rows=1, max_tokens=0) == []


def test_one_probe_alone_is_batched_with_itself():
    assert Batch((0, 0)) in safety_plan.plan([0], {0: 16}, max_rows=8, max_tokens=0)


def test_only_what_the_scheduler_would_batch_is_batched():
    def probe(width: int, length: int = 2, **parameters: Any) -> PartArrays:
        return PartArrays(1, length, {"x": np.zeros((1, width)), "ids": np.zeros((1, length))}, parameters)

    inputs = {"x": InputMeta("x", "FP32", (-1, -1)), "ids": InputMeta("ids", "FP32", (-1, -1), pad_axis=1)}
    made = [probe(3), probe(4), probe(3, 9), probe(3, a=1), probe(3, a=2), probe(3, by_row=1)]
    assert safety_plan.groups(made, inputs, ["by_row"]) == [[0, 2, 5], [1], [3], [4]]


# -- probes.json ---------------------------------------------------------------------------------------


def written(folder: Path, *inputs: dict[str, Any]) -> Path:
    (folder / "probes.json").write_bytes(msgspec.json.encode([{"inputs": list(inputs), "parameters": {"a": 1}}]))
    return folder


def given(**changed: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [2, 4], "data": [[1, 2, 3, 4], [5, 6, 7, 8.5]]} | changed


def test_each_row_of_a_request_in_the_file_is_a_probe(tmp_path: Path):
    first, second = probe_file.read("m/1", str(written(tmp_path, given())), [X])
    assert (first.rows, first.length, first.parameters) == (1, 1, {"a": 1})
    assert second.inputs["x"].tolist() == [[5, 6, 7, 8.5]]
    assert probe_file.read("m/1", str(tmp_path / "elsewhere"), [X]) == []


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ([given(name="y")], r"probes.json\[0\]: input 'y': the model has no such input, it has x"),
        ([given(datatype="FP64")], "takes FP32, got FP64"),
        ([given(shape=[2, 5])], r"takes \[-1, 4\], got shape \[2, 5\]"),
        ([given(data=[1])], "has 8 elements, data has 1"),
        ([given(shape=[1, 4], data=["1", 2, 3, 4])], "data is not FP32: got '1'"),
        ([], "input 'x' is missing; given: none"),
    ],
)
def test_what_is_wrong_in_the_file_is_told_with_its_place(tmp_path: Path, inputs: list[Any], says: str):
    with pytest.raises(LoadError, match=says):
        probe_file.read("m/1", str(written(tmp_path, *inputs)), [X])


@pytest.mark.parametrize("text", ["{", "[]", '[{"input": 1}]'])
def test_a_file_that_is_no_list_of_requests_is_refused(tmp_path: Path, text: str):
    (tmp_path / "probes.json").write_text(text)
    with pytest.raises(LoadError, match=r"m/1: probes.json"):
        probe_file.read("m/1", str(tmp_path), [X])


def test_integers_are_not_rounded_into_the_file(tmp_path: Path):
    ids = InputMeta("ids", "INT64", (-1, -1), pad_axis=1)
    wrong = {"name": "ids", "datatype": "INT64", "shape": [1, 2], "data": [1, 2.5]}
    with pytest.raises(LoadError, match=r"data is not INT64: got '2.5'"):
        probe_file.read("m/1", str(written(tmp_path, wrong)), [ids])
    assert probe_file.read("m/1", str(written(tmp_path, wrong | {"data": [1, 2]})), [ids])[0].length == 2

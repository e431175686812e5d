"""Programs of PyTorch: torch.export and TorchScript, and files that are neither."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from headway.config.settings import ModelSettings, Padding, Torch  # noqa: E402
from headway.wire.messages import ModelMeta  # noqa: E402
from headway.worker.errors import LoadError, ResultError  # noqa: E402
from headway.worker.executor import PartArrays  # noqa: E402
from headway.worker.torch_executor import TorchExecutor  # noqa: E402
from tests import torch_models  # noqa: E402
from tests.conformance.executors import SETTINGS, context, part, run  # noqa: E402

PADDED = ModelSettings(inputs={"values": Padding(), "mask": Padding()})


def load(folder: Path, settings: ModelSettings | None = None) -> tuple[Any, ModelMeta]:
    executor = TorchExecutor()
    return executor, executor.load(context(folder, settings or ModelSettings()))


def row(*values: float) -> PartArrays:
    return PartArrays(len(values), 1, {"x": np.array([[value] * 4 for value in values], np.float32)}, {})


def test_an_exported_program_says_itself_what_it_takes_and_gives(tmp_path: Path):
    executor, meta = load(torch_models.exported_affine(tmp_path / "a" / "1"))
    assert [(one.name, one.datatype, one.shape) for one in (*meta.inputs, *meta.outputs)] == [
        ("x", "FP32", (-1, 4)),
        ("y", "FP32", (-1, 4)),
    ]
    outputs = run(executor, [row(1), row(2, 3)])
    assert [output["y"][:, 0].tolist() for output in outputs] == [[3], [5, 7]]


def test_outputs_without_names_are_numbered_or_named_by_model_toml(tmp_path: Path):
    folder = torch_models.exported_masked_mean(tmp_path / "m" / "1")
    assert [one.name for one in load(folder)[1].outputs] == ["output_0", "output_1"]
    named = Torch(outputs={"mean": ("FP32", (-1,)), "centred": ("FP32", (-1, -1))})
    assert [one.name for one in load(folder, ModelSettings(torch=named))[1].outputs] == ["mean", "centred"]
    with pytest.raises(LoadError, match=r"model m/1: torch.outputs has 1 names, the file returns 2"):
        load(folder, ModelSettings(torch=Torch(outputs={"mean": ("FP32", (-1,))})))


def test_an_output_that_grows_with_padded_inputs_must_say_so(tmp_path: Path):
    folder = torch_models.exported_masked_mean(tmp_path / "m" / "1")
    with pytest.raises(LoadError, match=r"say \[outputs.output_1\] pad_axis = 1 in model.toml"):
        load(folder, PADDED)


def test_a_program_fixed_to_so_many_rows_is_filled_up(tmp_path: Path):
    executor, meta = load(torch_models.exported_affine(tmp_path / "a" / "1", rows=4))
    assert meta.max_batch_size == 4
    assert [output["y"][:, 0].tolist() for output in run(executor, [row(1), row(2, 3)])] == [[3], [5, 7]]
    with pytest.raises(ResultError, match="takes 4 rows at once, got 5"):
        run(executor, [row(1, 2, 3, 4, 5)])


@pytest.mark.parametrize("name", ["model.ts", "model.pt"])
def test_torchscript_must_be_told_what_it_takes(tmp_path: Path, name: str):
    folder = torch_models.scripted_masked_mean(tmp_path / "m" / "1", name)
    with pytest.raises(LoadError, match=r"model m/1: TorchScript does not say .*\(its arguments are values, mask\)"):
        load(folder, SETTINGS)
    wrong = Torch(inputs={"values": ("FLOAT", (-1, -1))}, outputs={"mean": ("FP32", (-1,))})
    with pytest.raises(LoadError, match=r"torch.inputs.values: unknown datatype 'FLOAT', known are BOOL, UINT8"):
        load(folder, ModelSettings(torch=wrong))
    shape = Torch(inputs={"values": ("FP32", (4,))}, outputs={"mean": ("FP32", (-1,))})
    with pytest.raises(
        LoadError, match=r"torch.inputs.values: expected -1 \(the rows\) and sizes, -1 = any, got \[4\]"
    ):
        load(folder, ModelSettings(torch=shape))


def test_bfloat16_travels_as_raw_bytes(tmp_path: Path):
    folder = tmp_path / "a" / "1"
    rows = torch.export.Dim("rows", min=1)
    torch_models._export(folder, torch.nn.Identity(), (torch.ones(2, 4, dtype=torch.bfloat16),), [{0: rows}])
    executor, meta = load(folder)
    assert meta.inputs[0].datatype == meta.outputs[0].datatype == "BF16"
    raw = np.array([[0x3F80, 0x4000, 0, 0]], "<u2")
    (output,) = run(executor, [PartArrays(1, 1, {meta.inputs[0].name: raw}, {})])
    assert output["output"].tolist() == raw.tolist() and output["output"].dtype == np.dtype("<u2")


class Bomb:
    """Leaves a file behind when it is unpickled by rules that let it."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def rewritten(file: Path, change: dict[str, bytes]) -> None:
    """Entries whose name ends in a key get other bytes; a key that fits none is added."""
    with zipfile.ZipFile(file) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    root = next(iter(entries)).split("/")[0]
    for ending, content in change.items():
        name = next((name for name in entries if name.endswith(ending)), f"{root}/{ending}")
        entries[name] = content
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def test_a_pickle_of_weights_is_refused_with_advice(tmp_path: Path):
    folder = tmp_path / "m" / "1"
    folder.mkdir(parents=True)
    torch.save(torch_models.Affine().state_dict(), folder / "model.pt")
    with pytest.raises(LoadError, match=r"(?s)model m/1: model.pt is a pickle .*weights_only.*torch.export.save"):
        load(folder)


def test_a_pickle_of_old_is_refused_and_not_read(tmp_path: Path):
    folder, mark = tmp_path / "m" / "1", tmp_path / "ran"
    folder.mkdir(parents=True)
    (folder / "model.pt").write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(LoadError, match=r"model m/1: model.pt is neither torch.export's archive nor TorchScript"):
        load(folder)
    assert not mark.exists()


def pickled_with(bomb: Bomb, folder: Path) -> bytes:
    file = folder / "bomb.bin"
    torch.save(bomb, file)
    return file.read_bytes()


def test_code_hidden_in_an_exported_program_does_not_run(tmp_path: Path):
    folder, mark = torch_models.exported_affine(tmp_path / "a" / "1"), tmp_path / "ran"
    rewritten(folder / "model.pt2", {"sample_inputs/model.pt": pickled_with(Bomb(mark), tmp_path)})
    with pytest.raises(LoadError, match=r"model a/1: model.pt2 holds a pickle with more than weights in it") as refused:
        load(folder)
    assert "(it asks for getattr)" in str(refused.value) and "Save the program anew, with torch.export.save" in str(
        refused.value
    )
    assert "weights_only" not in str(refused.value), "torch's own advice is to let the code run"
    assert not mark.exists()


@pytest.mark.parametrize("entry", ["opaque_obj_0", "custom_obj_0"])
def test_an_exported_program_with_objects_is_refused(tmp_path: Path, entry: str):
    folder, mark = torch_models.exported_affine(tmp_path / "a" / "1"), tmp_path / "ran"
    rewritten(folder / "model.pt2", {f"data/constants/{entry}": pickle.dumps(Bomb(mark))})
    with pytest.raises(
        LoadError, match=rf"model a/1: model.pt2 holds objects \({entry}\) that only a pickle could make"
    ):
        load(folder)
    assert not mark.exists()


def test_a_file_that_is_broken_is_told(tmp_path: Path):
    folder = torch_models.exported_affine(tmp_path / "a" / "1")
    rewritten(folder / "model.pt2", {"models/model.json": b"{"})
    with pytest.raises(LoadError, match=r"model a/1: torch cannot load model.pt2: "):
        load(folder)


def test_parts_of_mixed_lengths_run_padded(tmp_path: Path):
    named = Torch(outputs={"mean": ("FP32", (-1,)), "centred": ("FP32", (-1, -1))})
    settings = ModelSettings(inputs=SETTINGS.inputs, outputs=SETTINGS.outputs, torch=named)
    executor, _ = load(torch_models.exported_masked_mean(tmp_path / "m" / "1"), settings)
    outputs = run(executor, [part(1, 3, 0), part(2, 9, 1)])
    assert [output["centred"].shape for output in outputs] == [(1, 3), (2, 9)]

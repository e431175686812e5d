"""Reads the model repository: models/NAME/VERSION/ with a model's file (`EXECUTORS`), and models/NAME/model.toml.

Nothing is loaded here. Every problem is collected with its place and what was expected there; names
that begin with '.' or '_' are nobody's model and are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from headway.config.errors import ConfigError, Problem, nearest
from headway.config.huggingface import is_encoder, is_language_model
from headway.config.load import load_model_settings
from headway.config.settings import ModelSettings, Torch
from headway.registry.encoders import FolderError, filled_in
from headway.registry.naming import misnamed
from headway.registry.spec import VersionSpec

Overrides: TypeAlias = Mapping[str, Mapping[str, Any]]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
EXECUTORS = {
    "model.onnx": "onnx",
    "model.py": "python",
    "model.safetensors": "torch",
    "model.safetensors.index.json": "torch",
    "model.pt2": "torch",
    "model.pt": "torch",
    "model.ts": "torch",
    "model.gguf": "llm",
}
"""File -> the executor that runs it."""

FILES = "model.onnx, model.py, config.json with model.safetensors, model.pt2, model.pt or model.gguf"
LAYOUT = f"expected NAME/VERSION/ with {FILES}; VERSION a whole number from 1"
PICKLES = ("pytorch_model.bin", "model.bin", "model.ckpt", "model.pkl")
MANIFEST = "model.toml"


def scan(models_dir: Path, overrides: Overrides | None = None) -> list[VersionSpec]:
    """Every version in the repository, by name and version. Raises ConfigError with every problem."""
    specs, problems = survey(models_dir, overrides or {})
    if problems:
        raise ConfigError(problems)
    return specs


def survey(models_dir: Path, overrides: Overrides) -> tuple[list[VersionSpec], list[Problem]]:
    """What is right and what is wrong, side by side."""
    if not models_dir.is_dir():
        what = "is not a folder" if models_dir.exists() else "does not exist"
        return [], [Problem(str(models_dir), "", f"the model repository {what}; {LAYOUT}")]
    specs: list[VersionSpec] = []
    problems: list[Problem] = []
    names = [folder for folder in listing(models_dir) if folder.is_dir()]
    for folder in names:
        found, wrong = survey_model(folder, overrides.get(folder.name, {}))
        specs += found
        problems += wrong
    problems += stray_files(models_dir) + unused_overrides(models_dir, overrides, [folder.name for folder in names])
    if not names:
        problems.append(Problem(str(models_dir), "", f"the model repository holds no model; {LAYOUT}"))
    return sorted(specs, key=lambda spec: (spec.model, spec.version)), problems


def survey_model(folder: Path, override: Mapping[str, Any]) -> tuple[list[VersionSpec], list[Problem]]:
    if not NAME.fullmatch(folder.name):
        text = "not a name for a model: expected letters, digits, '.', '_' and '-', beginning with a letter or digit"
        return [], [Problem(str(folder), "", text)]
    manifest = folder / MANIFEST
    settings, problems = load_model_settings(manifest, override)
    specs: list[VersionSpec] = []
    versions = [entry for entry in listing(folder) if entry.is_dir()]
    for entry in versions:
        spec, wrong = survey_version(entry, settings or ModelSettings())
        specs += [spec] if spec else []
        problems += wrong
    problems += stray_models(folder)
    if not versions:
        problems.append(Problem(str(folder), "", f"holds no version; {LAYOUT}"))
    if settings and specs:
        problems += missing_default(manifest, settings, [spec.version for spec in specs])
        problems += unused_torch(manifest, settings, specs)
        problems += [problem for spec in specs for problem in misnamed(manifest, spec)]
    return (specs if settings else []), problems


def survey_version(folder: Path, settings: ModelSettings) -> tuple[VersionSpec | None, list[Problem]]:
    version = version_number(folder.name)
    if version is None:
        return None, [Problem(str(folder), "", "not a version: expected a whole number from 1, such as 1 or 12")]
    files = [name for name in EXECUTORS if (folder / name).is_file()]
    if "model.py" in files and settings.executor != "torch":
        files = [name for name in files if EXECUTORS[name] != "torch"]  # weights that model.py reads by itself
    kinds = {name: EXECUTORS[name] for name in files}
    if is_language_model(folder) and settings.executor != "torch":
        kinds |= {name: "llm" for name in files if name.startswith("model.safetensors")}
    problem = wrong_files(folder, kinds, settings.executor)
    if problem:
        return None, [Problem(str(folder), "", problem)]
    executor = settings.executor or kinds[files[0]]
    if executor == "torch" and is_encoder(folder):
        try:
            settings = filled_in(folder, settings)
        except FolderError as error:
            return None, [Problem(str(folder), "", str(error))]
    elif settings.max_length and not settings.inputs:
        return None, [Problem(str(folder.parent / MANIFEST), "max_length", no_length(settings.max_length))]
    spec = VersionSpec(folder.parent.name, version, str(folder.resolve()), executor, settings)
    return spec, missing_tokenizer(folder, settings)


def no_length(longest: int) -> str:
    """For a model of which only model.toml says what is padded, and it does not; an encoder's folder says it itself."""
    return (
        f"expected an input that is padded ([inputs.NAME] pad_axis = 1) beside max_length = {longest}: "
        "without one, requests have no length"
    )


def wrong_files(folder: Path, files: dict[str, str], executor: str) -> str | None:
    """Why these files do not make one model, or None. files: and the executor of each."""
    if not files:
        present = [entry.name for entry in listing(folder)]
        return f"expected {FILES}, found {', '.join(present) or 'nothing'}{advice(present)}"
    kinds = list(dict.fromkeys(files.values()))
    if executor and executor not in kinds:
        return f'executor = "{executor}" in {MANIFEST}, but found only {" and ".join(files)}'
    if len(kinds) > 1 and not executor:
        which = " or ".join(f'"{kind}"' for kind in kinds)
        return f"found both {' and '.join(files)}; remove one, or say executor = {which} in {MANIFEST}"
    chosen = [name for name, kind in files.items() if kind == (executor or kinds[0])]
    if len(chosen) > 1:
        return f"found both {' and '.join(chosen)}, expected one of them"
    if chosen[0].startswith("model.safetensors") and not is_encoder(folder):
        return f"found {chosen[0]} without config.json; expected the whole folder as transformers writes it"
    return None


def advice(present: list[str]) -> str:
    """For weights that are never read."""
    pickles = [name for name in present if name in PICKLES]
    if not pickles:
        return ""
    return (
        f". {pickles[0]} is a pickle: reading it may run any code that is in it. Save the weights as safetensors: "
        "model.save_pretrained(FOLDER, safe_serialization=True)"
    )


def missing_tokenizer(folder: Path, settings: ModelSettings) -> list[Problem]:
    """It lies beside the version, or in the model's folder for all of them."""
    if settings.embeddings is None:
        return []
    name = settings.embeddings.tokenizer
    if (folder / name).is_file() or (folder.parent / name).is_file():
        return []
    text = f"expected the tokenizer {name!r} here or in {folder.parent.name}/, as embeddings.tokenizer says"
    return [Problem(str(folder), "", text)]


def missing_default(manifest: Path, settings: ModelSettings, versions: list[int]) -> list[Problem]:
    if not settings.default_version or settings.default_version in versions:
        return []
    text = f"expected a version that is there ({', '.join(map(str, versions))}), got {settings.default_version}"
    return [Problem(str(manifest), "default_version", text)]


def unused_torch(manifest: Path, settings: ModelSettings, specs: list[VersionSpec]) -> list[Problem]:
    """A table that changes nothing is hardly what was meant."""
    if settings.torch == Torch() or any(spec.executor == "torch" for spec in specs):
        return []
    run_by = " and ".join(dict.fromkeys(f'"{spec.executor}"' for spec in specs))
    text = f"expected no such table: it is for models that the executor torch runs, this one is run by {run_by}"
    return [Problem(str(manifest), "torch", text)]


def stray_files(models_dir: Path) -> list[Problem]:
    """A model that was put one level too high is a mistake worth naming; a README is not."""
    return [
        Problem(str(entry), "", f"a model's file in the repository's own folder; {LAYOUT}")
        for entry in listing(models_dir)
        if entry.is_file() and (entry.name in EXECUTORS or entry.suffix in (".onnx", ".pt2") or entry.name == MANIFEST)
    ]


def stray_models(folder: Path) -> list[Problem]:
    return [
        Problem(str(folder / name), "", f"expected in a version's folder, for example {folder.name}/1/{name}")
        for name in EXECUTORS
        if (folder / name).is_file()
    ]


def unused_overrides(models_dir: Path, overrides: Overrides, names: list[str]) -> list[Problem]:
    problems = []
    for name in overrides:
        if name not in names:
            close = nearest(name, names)
            hint = f"did you mean '{close}'?" if close else f"models here: {', '.join(names) or 'none'}"
            problems.append(Problem(f"[models.{name}]", "", f"no such model in {models_dir}; {hint}"))
    return problems


def version_number(name: str) -> int | None:
    """1, 12, ... but not 0, 01 or 1.0: two folders must never mean the same version."""
    return int(name) if re.fullmatch(r"[1-9][0-9]{0,17}", name) else None


def listing(folder: Path) -> list[Path]:
    """What is in the folder and not hidden, in order: whole numbers as numbers, then names."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith((".", "_"))]
    return sorted(entries, key=lambda entry: (version_number(entry.name) or 0, entry.name))

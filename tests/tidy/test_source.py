"""What the source itself must look like, read from its syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headway"
CORE = SOURCE / "core"
PLAN = SOURCE / "llm" / "plan"
RUN = SOURCE / "llm" / "run"

PURE = {
    "__future__",
    "array",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "math",
    "operator",
    "typing",
}
"""The parts of the standard library that read no clock, do no I/O, draw no random number, start no thread."""

LONGEST_CORE_FILE = 400
TEXT = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".json", ".sh", ""}
HEAVY = {"torch", "transformers", "safetensors", "huggingface_hub", "gguf"}
"""Not in a base install."""


def python_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*.py") if "_compiled" not in file.parts)


DECIDING = [file for file in python_files(CORE) + python_files(PLAN) if file.name != "invariants.py"]
"""Checking whether two collections hold the same decides nothing."""


def imports(file: Path) -> Iterator[str]:
    """Modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import"
            yield node.module or ""


def tracked_text() -> Iterator[Path]:
    """Files that people wrote, build outputs and environments left out."""
    folders = ["src", "tests", "docs", "examples", "benchmarks", "tools", ".ci"]
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*"))]
    for file in [*files, *sorted(ROOT.iterdir())]:
        generated = any(part == "__pycache__" or part.endswith(".egg-info") for part in file.parts)
        if file.is_file() and file.suffix in TEXT and not generated:
            yield file


@pytest.mark.parametrize("file", python_files(CORE) + python_files(PLAN), ids=lambda file: file.name)
def test_the_core_imports_only_itself_and_pure_parts_of_the_standard_library(file: Path) -> None:
    ours = ("headway.core", "headway.llm.plan") if PLAN in file.parents else ("headway.core",)
    others = [name for name in imports(file) if name not in PURE and not name.startswith(ours)]
    assert others == []


@pytest.mark.parametrize("file", DECIDING, ids=lambda file: file.name)
def test_the_core_holds_no_set_so_that_order_never_depends_on_a_hash(file: Path) -> None:
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
        if made or isinstance(node, ast.Set | ast.SetComp):
            found.append(f"{file.name}:{node.lineno}")
    assert found == []


@pytest.mark.parametrize("file", python_files(CORE) + python_files(PLAN), ids=lambda file: file.name)
def test_the_core_asks_for_no_hash_no_identity_and_does_no_io(file: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    names = [call.func.id for call in calls if isinstance(call.func, ast.Name)]
    assert [name for name in names if name in ("hash", "id", "print", "open", "input", "eval", "exec")] == []


@pytest.mark.parametrize("file", python_files(CORE) + python_files(PLAN), ids=lambda file: file.name)
def test_no_file_of_the_core_grows_past_what_one_reads_at_once(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= LONGEST_CORE_FILE


def test_nothing_is_left_to_do_in_the_source() -> None:
    words = re.compile(r"\b(" + "|".join(["FIX" + "ME", "X" * 3, "TO" + "DO"]) + r")\b")
    found = [str(file) for file in python_files(SOURCE) if words.search(file.read_text())]
    assert found == []


TENSORS = [RUN, SOURCE / "llm" / "sample"]
"""Folders whose modules run in a worker of a language model, and nowhere else."""
LOOP = SOURCE / "llm" / "engine.py"
"""What ties them together."""


def test_only_the_export_of_the_default_model_and_what_runs_in_a_torch_worker_need_more_than_the_base_install() -> None:
    heavy = [file for file in python_files(SOURCE) if HEAVY & {name.split(".")[0] for name in imports(file)}]
    executor = [file for file in heavy if file.parent.name == "worker" and file.name.startswith("torch_")]
    others = [file.name for file in heavy if file not in (*executor, LOOP) and file.parent not in TENSORS]
    assert others == ["minilm_export.py"]


def test_what_runs_a_language_model_knows_the_plan_and_nothing_else_of_ours() -> None:
    ours = [name for file in python_files(RUN) for name in imports(file) if name.startswith("headway")]
    allowed = ("headway.llm.run", "headway.llm.plan.")
    assert [name for name in ours if not name.startswith(allowed) and name != "headway"] == []


def test_what_a_request_asks_of_the_sampler_is_plain_data() -> None:
    assert all(not HEAVY & set(imports(SOURCE / "llm" / "sample" / name)) for name in ("__init__.py", "params.py"))


def test_only_one_place_imports_the_torch_executor_and_only_when_it_is_wanted() -> None:
    importers = [
        str(file.relative_to(SOURCE))
        for file in python_files(SOURCE)
        if not file.name.startswith("torch_")
        if any(name.startswith("headway.worker.torch_") for name in imports(file))
    ]
    assert importers == ["worker/executors.py"]
    top = ast.parse((SOURCE / "worker" / "executors.py").read_text()).body
    assert not [node for node in top if isinstance(node, ast.ImportFrom) and "torch" in (node.module or "")]


def test_a_model_is_only_ever_loaded_from_local_files() -> None:
    loads = [
        (file.name, node)
        for file in python_files(SOURCE)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "from_pretrained"
    ]
    places = ["minilm_export.py", "torch_encoder.py", "torch_encoder.py"]
    assert [name for name, _ in loads] == places, "the places that may load a model in this way"
    for name, node in loads:
        local = {word.arg: word.value for word in node.keywords}.get("local_files_only")
        assert isinstance(local, ast.Constant) and local.value is True, f"{name}:{node.lineno}"


def test_no_path_of_one_machine_is_written_down() -> None:
    own = re.escape(f"{ROOT}/") if len(ROOT.parts) > 2 else r"(?!)"
    machine = re.compile(own + r"|/(home|Users)/[a-z]|/root/")
    found = [str(file.relative_to(ROOT)) for file in tracked_text() if machine.search(file.read_text(errors="replace"))]
    assert [name for name in found if name != "tests/tidy/test_source.py"] == []


def test_every_name_in_the_glossary_exists_in_the_source() -> None:
    glossary = ROOT / "docs" / "concepts.md"
    if not glossary.exists():
        pytest.skip("there is no docs/concepts.md")
    source = "\n".join(file.read_text() for file in python_files(SOURCE))
    names = dict.fromkeys(re.findall(r"`([A-Za-z_]\w*)`", glossary.read_text()))
    missing = [name for name in names if not re.search(rf"\b{name}\b", source)]
    assert missing == []

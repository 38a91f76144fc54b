"""The house keeps its shape: arrows point one way, the library stays light, and no name shadows another.

Imports are read from the source with `ast`, so an import inside a function counts as well; only what an import costs at
run time is tried in a fresh interpreter.
"""

from __future__ import annotations

import ast
import graphlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import syntax_tree

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("plansmith", "actors", "cluster", "pipelines")
TRANSLATE_WORKER = "plansmith.planners.translate_worker"

BELOW_REPORT = {"pddl", "planners", "problems", "text", "modelling", "data", "judging", "learning", "layout", "live"}
ALLOWED_IN_LIBRARY = {
    "errors": set(),
    "garbage": set(),
    "generation": {"data"},
    "console": set(),
    "config": set(),
    "pddl": set(),
    "planners": {"pddl"},
    "problems": {"pddl", "code_digest"},
    "text": {"pddl", "problems"},
    "data": {"pddl", "planners", "problems", "text", "layout", "machine"},
    "layout": set(),
    "machine": set(),
    "live": set(),
    "watchdog": {"live"},
    "progress": {"live"},
    "code_digest": set(),
    "resources": {"generation"},
    "stages": {"code_digest", "data", "progress", "resources"},
    "invented": {"data", "pddl", "planners", "problems", "stages"},
    "judging": {"pddl", "planners", "problems", "text", "data", "generation", "modelling"},
    "learning": {"pddl", "planners", "problems", "text", "data", "judging", "generation"},
    "modelling": {"pddl", "text", "data", "generation"},
    "report": BELOW_REPORT,
    "ablation": {*BELOW_REPORT, "report", "pipeline"},
    "watch": {*BELOW_REPORT, "report", "pipeline", "progress", "hosts"},
    "groups": set(),
    "hosts": set(),
    "tools": {"pddl", "planners", "problems", "text", "hosts"},
    "workbench": {"pddl", "planners", "data", "judging", "modelling", "hosts"},
    "pipeline": {"console", "data", "report", "learning", "stages"},
    "commands": {
        "learning",
        "pipeline",
        "pddl",
        "planners",
        "problems",
        "text",
        "data",
        "report",
        "watch",
        "layout",
        "machine",
        "live",
        "progress",
        "invented",
        "hosts",
        "tools",
    },
    "cli": {
        "commands",
        "console",
        "pddl",
        "planners",
        "problems",
        "text",
        "data",
        "judging",
        "learning",
        "report",
        "watch",
        "progress",
        "stages",
        "pipeline",
    },
}
"""What each part of the library may import besides itself, `errors`, `config`, `garbage`, `groups` and the version."""

EVERYWHERE = {"errors", "config", "garbage", "groups"}

HOMES = {
    "torch": ("plansmith.learning", "actors", "pipelines"),
    "ray": ("actors", "cluster", "pipelines"),
    "vllm": ("actors.engine", "actors.weight_transfer"),
    "deepspeed": ("actors.deepspeed_engine",),
}
"""Where a heavy library may be imported; calls of an engine sit in a file or two, where an upgrade is read."""

PARTS_OF_ACTORS = {
    "actors.engine": "actors.policy",
    "actors.engine_weights": "actors.policy",
    "actors.deepspeed_engine": "actors.trainer",
    "actors.trainer": "actors.ranks",
    "cluster.service.answer": "cluster.service.planning",
    "cluster.service.view": "cluster.service.planning",
}
"""Modules that are a part of one actor, and that actor."""

SHARED_BY_ACTORS = {"actors.failures", "actors.telemetry", "actors.weight_transfer"}
"""Modules that are no actor and serve several."""

GPL_LIBRARIES = {"fast_downward": TRANSLATE_WORKER}
"""Libraries under the GPL and the one file that imports each."""


def source_files() -> list[Path]:
    """Return every Python file of the four packages, sorted."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    """Return the dotted name of a file below the root; a package is named by its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in source_files()}


def imported_names(module: str, nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Yield the dotted names that import statements among `nodes` name, relative ones resolved."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute_base(module, node)
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                yield submodule if submodule in MODULES else base


def absolute_base(module: str, node: ast.ImportFrom) -> str:
    """Return the module a `from ... import` names, counting its dots from `module`."""
    if not node.level:
        return node.module or ""
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    parts = package.split(".")
    parts = parts[: len(parts) - (node.level - 1)]
    return ".".join([*parts, *([node.module] if node.module else [])])


def imports_of(module: str) -> set[str]:
    """Return every module that `module` imports, wherever in the file the import stands."""
    return set(imported_names(module, ast.walk(parse(module))))


def parse(module: str) -> ast.Module:
    """Return the syntax tree of a module of ours."""
    return syntax_tree(MODULES[module])


def is_within(module: str, package: str) -> bool:
    """Say whether `module` is `package` or lies inside it."""
    return module == package or module.startswith(package + ".")


def arrows() -> list[tuple[str, str]]:
    """Return every (importing, imported) pair of the four packages."""
    return [(module, imported) for module in sorted(MODULES) for imported in sorted(imports_of(module))]


def test_packages_are_read_and_their_imports_seen() -> None:
    assert {"plansmith.errors", "plansmith.cli", "plansmith.stages", "pipelines.pddl_instruct"} <= set(MODULES)
    assert "plansmith.pipeline" in imports_of("plansmith.cli")


def test_library_parts_each_import_only_what_lies_below() -> None:
    wrong = []
    for module, imported in arrows():
        if not (is_within(module, "plansmith") and is_within(imported, "plansmith")) or "." not in imported:
            continue
        part, target = [*module.split("."), ""][1], imported.split(".")[1]
        if part and target != part and target not in ALLOWED_IN_LIBRARY[part] | EVERYWHERE:
            wrong.append(f"{module} imports {imported}")
    assert wrong == []


def test_library_parts_every_one_has_its_place_in_the_order() -> None:
    parts = {module.split(".")[1] for module in MODULES if module.startswith("plansmith.")}
    assert parts - set(ALLOWED_IN_LIBRARY) == set()
    tuple(graphlib.TopologicalSorter(ALLOWED_IN_LIBRARY).static_order())  # raises CycleError if the order has a cycle


def test_library_imports_neither_actors_nor_pipelines() -> None:
    outward = ("actors", "pipelines", "tests", "benchmarks", "cluster")
    wrong = [
        f"{module} imports {imported}"
        for module, imported in arrows()
        if is_within(module, "plansmith") and any(is_within(imported, package) for package in outward)
    ]
    assert wrong == []


def test_actors_import_neither_pipelines_nor_each_other() -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, imported in arrows()
        if is_within(module, "actors")
        and (
            is_within(imported, "pipelines")
            or is_within(imported, "cluster")
            or (is_within(imported, "actors") and imported != module)
        )
        and PARTS_OF_ACTORS.get(imported) != module
        and imported not in SHARED_BY_ACTORS
    ]
    assert wrong == []


@pytest.mark.parametrize("library", sorted(HOMES))
def test_heavy_library_is_imported_only_where_it_belongs(library: str) -> None:
    wrong = [
        module
        for module, imported in arrows()
        if is_within(imported, library) and not any(is_within(module, home) for home in HOMES[library])
    ]
    assert wrong == []


def test_modules_import_each_other_without_a_cycle() -> None:
    graph = {module: imports_of(module) & set(MODULES) - {module} for module in MODULES}
    order = tuple(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the cycle
    assert set(order) == set(MODULES)


def test_translate_worker_shares_no_import_with_the_rest_in_either_direction() -> None:
    assert TRANSLATE_WORKER in MODULES
    assert [name for name in imports_of(TRANSLATE_WORKER) if name.split(".")[0] in PACKAGES] == []
    assert [module for module, imported in arrows() if imported == TRANSLATE_WORKER] == []


@pytest.mark.parametrize("library", sorted(GPL_LIBRARIES))
def test_gpl_library_is_imported_by_its_one_file_only(library: str) -> None:
    assert {module for module, imported in arrows() if is_within(imported, library)} == {GPL_LIBRARIES[library]}


def test_gpl_licence_is_declared_by_one_file_only() -> None:
    def opening(path: Path) -> str:
        return "\n".join(path.read_text(encoding="utf-8").splitlines()[:20])

    declared = {module for module, path in MODULES.items() if "SPDX-License-Identifier: GPL" in opening(path)}
    assert declared == {TRANSLATE_WORKER}


def modules_loaded_by(*modules: str) -> set[str]:
    """Return the names of every module a fresh interpreter holds after importing `modules`."""
    program = f"import sys, {', '.join(modules)}; print(*sys.modules, sep='\\n')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


def test_import_of_validator_and_cli_loads_nothing_heavy() -> None:
    loaded = modules_loaded_by("plansmith.pddl.validation", "plansmith.cli")
    assert "plansmith.cli" in loaded
    assert loaded & {"torch", "ray", "vllm", "deepspeed", "transformers", "datasets", "matplotlib"} == set()


def test_import_of_whole_library_below_learning_loads_no_torch() -> None:
    modules = sorted(name for name in MODULES if is_within(name, "plansmith") and name != TRANSLATE_WORKER)
    light = [name for name in modules if not is_within(name, "plansmith.learning")]
    loaded = modules_loaded_by(*light)
    assert set(light) <= loaded
    assert loaded & {"torch", "ray", "vllm", "deepspeed"} == set()


def test_import_of_datasets_at_the_root_finds_hugging_face() -> None:
    program = "import datasets; print(datasets.__file__); datasets.Dataset"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not Path(done.stdout.strip()).is_relative_to(ROOT / "datasets")


def test_datasets_folder_holds_no_code() -> None:
    assert (ROOT / "datasets" / "README.md").is_file()
    assert [str(path) for path in (ROOT / "datasets").rglob("*.py")] == []


def pipeline_files() -> list[Path]:
    """Return the files of `pipelines/` that a person may start."""
    return sorted(path for path in (ROOT / "pipelines").glob("*.py") if path.name != "__init__.py")


@pytest.mark.parametrize("path", pipeline_files(), ids=lambda path: path.name)
def test_pipeline_file_starts_by_its_own_name(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/env python3\n")
    assert os.access(path, os.X_OK)

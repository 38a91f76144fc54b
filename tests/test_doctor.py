"""`plansmith doctor`: what it says of machines, made up and real."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from plansmith import cli
from plansmith import machine as machines
from plansmith.commands.doctor import Finding, Machine, findings, lines_of
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.machine import memory_bytes, usable_cores

GOOD = Machine("3.11.7", {"torch": ("2.13.0", "2.13.0+cpu")}, cores=2, products="amx_bf16", memory=16, free_memory=12,
               store=8, disk=50, gpus=("1 x NVIDIA H100, 81559 MiB",), ray_address="")  # fmt: skip


def told(**changes: object) -> dict[str, Finding]:
    """Return what is said beyond what there is, by what was looked at."""
    return {item.what: item for item in findings(replace(GOOD, **changes)) if item.advice}  # type: ignore[arg-type]


def test_machine_with_everything_gets_no_advice() -> None:
    assert told() == {}
    assert [item.what for item in findings(GOOD)] == [
        "Python", "torch", "cores", "products", "memory", "/dev/shm", "disk for runs", "GPU", "Ray",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "what", "said", "is_fatal"),
    [
        ({"python": "3.10.2"}, "Python", "tested are 3.11 and 3.12", True),
        ({"packages": {"ray": ("2.60.0", "2.61.0")}}, "ray", "2.60.0 is what everything was checked with", True),
        ({"packages": {"ray": ("2.60.0", "")}}, "ray", "make install", True),
        ({"cores": 1}, "cores", "trainer.n_ranks=1", False),
        ({"cores": 16}, "cores", "cluster.num_cpus=16", False),
        ({"products": "avx2"}, "products", "trainer.dtype and policy.dtype stay float32", False),
        ({"products": "", "gpus": ()}, "GPU", "trainer.device=cuda", False),
        ({"free_memory": 5.9}, "memory", "policy.n_replicas=1", False),
        ({"store": 0.06}, "/dev/shm", "--shm-size=2g", False),
        ({"disk": 4.9}, "disk for runs", "--runs", False),
    ],
)
def test_what_is_lacking_is_told_with_what_to_change(
    changes: dict[str, object], what: str, said: str, is_fatal: bool
) -> None:
    found = told(**changes)
    assert said in found[what].advice and found[what].is_fatal == is_fatal


def test_settings_that_are_named_exist() -> None:
    poor = replace(GOOD, cores=1, products="", gpus=(), free_memory=1, store=0, disk=1)
    named = {name for machine in (poor, replace(poor, cores=8)) for name in settings_in(findings(machine))}
    assert len(named) > 8
    for name in named:
        model = PddlInstructConfig
        *parts, last = name.split(".")
        for part in parts:
            model = model.model_fields[part].annotation  # type: ignore[assignment]
        assert last in model.model_fields, name


def settings_in(found: Iterable[Finding]) -> set[str]:
    text = " ".join(item.advice for item in found)
    return set(re.findall(r"\b(?:trainer|policy|cluster)\.\w+|\bkeep_weights\b", text))


def test_lines_have_a_table_then_what_is_to_be_done() -> None:
    lines = list(lines_of(findings(replace(GOOD, cores=1, python="3.10.2"))))
    assert [line.split()[-1] for line in lines[0].splitlines()[2:5]] == ["missing", "ok", "note"]
    assert [line.partition(":")[0].strip() for line in lines[1:]] == ["Python", "cores"]


def test_command_says_of_this_machine_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["doctor", "--runs", str(tmp_path / "not" / "yet"), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert code == any(item["is_fatal"] for item in said["findings"]) == 0
    assert said["machine"]["packages"]["ray"][0] == said["machine"]["packages"]["ray"][1] != ""
    assert said["machine"]["cores"] >= 1 and said["machine"]["free_memory"] <= said["machine"]["memory"]


def test_limits_of_a_control_group_count_where_they_are_narrower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = tmp_path / "meminfo"
    facts.write_text("MemTotal:       8000000 kB\nMemFree: 1 kB\nMemAvailable:   6000000 kB\n")
    monkeypatch.setattr(machines, "MEMORY_FACTS", facts)
    monkeypatch.setattr(machines, "GROUP_FACTS", tmp_path)
    monkeypatch.setattr(machines.os, "sched_getaffinity", lambda _: set(range(8)))
    assert (usable_cores(), memory_bytes()) == (8, (8_000_000 * 1024, 6_000_000 * 1024))
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert (usable_cores(), memory_bytes()) == (8, (8_000_000 * 1024, 6_000_000 * 1024))
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("4000000000\n")
    (tmp_path / "memory.current").write_text("1000000000\n")
    assert (usable_cores(), memory_bytes()) == (2, (4_000_000_000, 3_000_000_000))

"""`plansmith problems`: what it prints and writes, the same again, no problem twice, mistakes said plainly."""

from __future__ import annotations

from pathlib import Path

import pytest

from plansmith.cli import main
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.problems.library import domain_names, load_domain
from plansmith.text.natural_language_reader import read_problem_text

Capture = pytest.CaptureFixture[str]


def test_problems_writes_a_folder_that_the_planner_and_the_validator_read(tmp_path: Path, capsys: Capture) -> None:
    assert main(["problems", "ferry", "--level", "L2", "-n", "4", "--text", "--out", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "domain.pddl", *(f"p{n:04d}.{ending}" for n in range(1, 5) for ending in ("pddl", "txt"))
    }  # fmt: skip
    domain = parse_domain((tmp_path / "out" / "domain.pddl").read_text(encoding="utf-8"))
    phrases = load_domain("ferry").phrases
    assert phrases
    forms = set()
    for number in range(1, 5):
        problem = parse_problem((tmp_path / "out" / f"p{number:04d}.pddl").read_text(encoding="utf-8"), domain)
        said = read_problem_text(domain, phrases, (tmp_path / "out" / f"p{number:04d}.txt").read_text(encoding="utf-8"))
        assert set(said.init) == set(problem.init)
        assert 11 <= len(problem.objects) <= 20
        forms.add(canonical_form(domain, problem))
    assert len(forms) == 4
    assert "ferry L2" in capsys.readouterr().out


def test_problems_beside_more_of_an_earlier_call_are_refused_and_change_nothing(
    tmp_path: Path, capsys: Capture
) -> None:
    assert main(["problems", "ferry", "-n", "4", "--out", str(tmp_path)]) == 0
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert main(["problems", "miconic", "-n", "2", "--out", str(tmp_path)]) == 2
    assert "a file of another call" in capsys.readouterr().err
    assert main(["problems", "ferry", "-n", "2", "--out", str(tmp_path)]) == 2
    assert "p0003.pddl" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before
    assert main(["problems", "ferry", "-n", "4", "--text", "--out", str(tmp_path)]) == 0
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert main(["problems", "ferry", "-n", "4", "--out", str(tmp_path)]) == 2  # texts that nobody would write
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == texts


def test_problems_of_the_same_seed_are_the_same(capsys: Capture) -> None:
    texts = []
    for seed in ("1", "1", "2"):
        assert main(["problems", "miconic", "-n", "2", "--seed", seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].count("(define (problem") == 2


def test_problems_that_a_level_has_no_more_of_are_said_and_counted(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "settings.yaml").write_text(
        "sampler: blocksworld\nlevels: {tiny: {blocks: [2, 2]}}\n", encoding="utf-8"
    )
    domain = load_domain("blocksworld").folder / "domain.pddl"
    (tmp_path / "domain.pddl").write_text(domain.read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["problems", str(tmp_path), "-n", "9", "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert (
        "only 2 of 9" in said.err
    )  # one block onto the other: both on the table at the start, or the wrong one on top
    assert len(list((tmp_path / "out").glob("p*.pddl"))) == 2


def test_problems_list_names_every_domain_with_its_levels(capsys: Capture) -> None:
    assert main(["problems", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert {line.split()[0] for line in lines} == set(domain_names())
    assert len(lines) == sum(len(load_domain(name).levels) for name in domain_names())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which domain?"),
        (["fery"], "did you mean ferry?"),
        (["ferry", "--level", "L7"], "no such level"),
        (["ferry", "-n", "0"], "nothing to draw"),
    ],
    ids=["no domain", "unknown domain", "unknown level", "no number"],
)
def test_problems_with_a_mistake_says_which_and_exits_2(arguments: list[str], message: str, capsys: Capture) -> None:
    assert main(["problems", *arguments]) == 2
    assert message in capsys.readouterr().err

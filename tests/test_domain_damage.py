"""How wrong may a domain be: what is drawn, that it can be read, which runs share what, and what the report says."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from test_self_criteach import CHECKING, Lending, best, first_stages

from pipelines.commands import ablate
from pipelines.self_criteach import PIPELINE
from pipelines.stages import domain_writing
from pipelines.stages.domain_writing import DamageSettings, written_domain
from plansmith.ablation.domain_damage import (
    COST,
    DISAGREEMENT,
    INTACT,
    DamageResults,
    DrawnDamage,
    damage_variants,
    damaged_arm,
)
from plansmith.ablation.domain_damage_report import damage_report, damage_table, drawn_table
from plansmith.ablation.seeds import over_seeds
from plansmith.ablation.summary import ArmRun, MeanCell, SeedMean
from plansmith.config.domain_writing import DamageConfig
from plansmith.data.artifacts import Artifact
from plansmith.errors import ConfigError, PlansmithError
from plansmith.judging.taxonomy import ErrorClass
from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.parser import parse_domain
from plansmith.pddl.printer import print_domain
from plansmith.pipeline import Reporting
from plansmith.problems.damage import damaged
from plansmith.problems.library import load_domain
from plansmith.problems.pruning import size_of
from plansmith.report.criteach_results import DamagedDomain, DomainFigures
from plansmith.report.metrics import ALL_LEVELS, EvaluatedProblem
from plansmith.report.render import format_report, render_page
from plansmith.stages import Stage, run_stages

DOMAIN = load_domain("blocks-classic").domain
Kind = Literal["removed", "added"]


@pytest.mark.parametrize("kind", ["removed", "added"])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_damage_is_so_many_literals_and_can_be_read(kind: Kind, n: int) -> None:
    for seed in range(10):
        found = damaged(DOMAIN, kind, n, random.Random(seed))
        assert size_of(found.domain) - size_of(DOMAIN) == (n if kind == "added" else -n)
        assert len(set(found.changes)) == n and all(change.startswith(f"{kind} ") for change in found.changes)
        text = print_domain(found.domain)
        assert not [mistake for mistake in diagnose(text) if mistake.is_error]
        assert parse_domain(text).actions == found.domain.actions


def test_damage_names_the_literal_that_is_gone() -> None:
    found = damaged(DOMAIN, "removed", 1, random.Random(0))
    [change] = found.changes
    what, name = change.removeprefix("removed ").split(" of ")
    before, after = DOMAIN.action(name), found.domain.action(name)
    assert before is not None and after is not None
    kind, literal = what.split(" ", 1)
    for action, is_there in ((before, True), (after, False)):
        part = str(action.precondition) if kind == "precondition" else " ".join(map(str, action.effects))
        assert (literal in part) == is_there or part.count(literal) > 1


def test_greater_damage_of_a_seed_begins_with_the_smaller_one_and_seeds_differ() -> None:
    drawn = {n: damaged(DOMAIN, "added", n, random.Random(5)).changes for n in (1, 2, 4)}
    assert drawn[4][:2] == drawn[2] and drawn[2][:1] == drawn[1]
    assert len({damaged(DOMAIN, "removed", 2, random.Random(seed)).changes for seed in range(8)}) > 4


def test_more_literals_than_there_are_cannot_be_removed() -> None:
    with pytest.raises(PlansmithError, match="not as many literals"):
        damaged(DOMAIN, "removed", size_of(DOMAIN) + 1, random.Random(0))


# --- the stage


def with_damage(**changes: Any) -> list[Stage[Any]]:
    stages = {stage.name: stage for stage in first_stages() if stage.name != "adopt"}
    settings = DamageSettings(
        **CHECKING.model_dump(exclude={"planner"}),
        planner=CHECKING.planner,
        damage=DamageConfig(**{"kind": "added", "literals": 4, **changes}),
    )
    inputs = {"problems": stages["sample_problems"], "demonstrations": stages["gather"], "written": stages["prune"]}
    return [*stages.values(), Stage(name="damage", run=domain_writing.damage_domain, settings=settings, inputs=inputs)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the stages before the damage are finished once."""
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def made(root: Path) -> dict[str, Artifact]:
    return run_stages(with_damage(), root=root, resources=Lending())


def test_damaged_domain_can_be_learnt_in_and_says_what_was_done(made: dict[str, Artifact]) -> None:
    row, written = best(made["damage"]), written_domain(made["prune"])
    assert len(row.dropped) == 4 and row.n_literals == size_of(written) + 4
    assert row.solved is not None and row.solved > 0
    assert row.domain_pddl == print_domain(written_domain(made["damage"])) != print_domain(written)


def test_damage_that_leaves_nothing_to_learn_from_is_an_error(root: Path) -> None:
    many = with_damage(kind="removed", literals=size_of(DOMAIN), redraws=0)
    with pytest.raises(PlansmithError, match=r"not as many literals|no drawn damage"):
        run_stages(many, root=root, resources=Lending())


# --- the study


def test_variants_share_everything_up_to_the_damage_and_nothing_learnt_after() -> None:
    variants = damage_variants(PIPELINE.settings("smoke"))
    assert [variant.name for variant in variants] == [
        INTACT, "removed_1", "removed_2", "removed_4", "added_1", "added_2", "added_4"
    ]  # fmt: skip
    keys = [{stage.name: stage.key for stage in PIPELINE.stages(variant.config)} for variant in variants]
    shared = {"sample_problems", "gather_demonstrations_blocks-classic", "prune_domain_blocks-classic", "plan_tests"}
    for name in shared:
        assert len({found[name] for found in keys}) == 1, name
    for name in ("adopt_domains", "sft", "sft_cpo", "try_sft_cpo"):
        assert len({found[name] for found in keys}) == len(variants), name
    assert "damage_domain_blocks-classic" in keys[1] and "damage_domain_blocks-classic" not in keys[0]
    assert not [name for name in keys[0] if "noise" in name or "symbol" in name]


def test_study_without_cpo_or_with_damage_is_bad_input() -> None:
    config = PIPELINE.settings("smoke")
    worse = config.domain.model_copy(update={"damage": DamageConfig(kind="added", literals=1)})
    for changes in ({"cpo": None}, {"domain": worse}):
        with pytest.raises(ConfigError, match="compares CPO"):
            damage_variants(config.model_copy(update=changes))


def test_study_and_ablation_have_presets_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def settings(pipeline: Any, preset: str, **_: Any) -> Any:
        asked.append(preset)
        raise ConfigError("no more is asked")

    monkeypatch.setattr("plansmith.pipeline.Pipeline.settings", settings)
    for options in ([], ["--study", "domain-damage"], ["--study", "domain-damage", "--preset", "small"]):
        assert ablate.main(["self_criteach", *options]) == 2
    assert asked == ["laptop", "demo", "small"]


def test_study_is_asked_for_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[Any]) -> None:
    options = ["self_criteach", "--preset", "smoke", "--seeds", "2", "--dry-run", "--runs", str(tmp_path)]
    assert ablate.main([*options, "--study", "domain-damage", "--variants", "added_2,intact"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:3] for line in lines] == [[s, v] for s in "01" for v in (INTACT, "added_2")]
    assert ablate.main([*options, "--study", "damage"]) == 2
    said = capsys.readouterr().err
    assert "no such study" in said and "domain-damage" in said
    assert ablate.main(["pddl_instruct", "--preset", "smoke", "--study", "domain-damage", "--dry-run"]) == 2


def tried(n_valid: int, n: int = 10) -> tuple[EvaluatedProblem, ...]:
    return tuple(
        EvaluatedProblem(
            problem_id=f"p{k}", domain="blocks-classic", level="4 blocks", form=f"form {k}", is_valid=k < n_valid,
            error_class=None if k < n_valid else ErrorClass.GOAL_NOT_ACHIEVED, plan_length=4, planner_plan_length=4,
            completion_tokens=10,
        )
        for k in range(n)
    )  # fmt: skip


def results() -> DamageResults:
    """Return two seeds of the domain as written and of one damage; success 8 and 10 of 10, then 2 and 4."""
    reached = {INTACT: (8, 10), "removed_4": (2, 4)}
    runs = [
        ArmRun(damaged_arm("sft_cpo", variant), seed, tried(counts[seed]))
        for variant, counts in reached.items()
        for seed in (0, 1)
    ]
    arms = list(dict.fromkeys(run.arm for run in runs))
    success = over_seeds("damage", runs, arms, {ALL_LEVELS: lambda _: True}, (), preset="demo")
    cells = [
        MeanCell.over(damaged_arm("sft_cpo", variant), figure, [SeedMean(0, 10, 10, a), SeedMean(1, 10, 10, b)], None)
        for variant, figure, a, b in (
            (INTACT, COST, 0.1, 0.3), ("removed_4", COST, 0.9, 0.7), ("removed_4", DISAGREEMENT, 0.25, 0.75),
        )
    ]  # fmt: skip
    figures = DomainFigures(30, 2, 0.9, 0.5, 1.0, 0.25, None, None, None, None)
    change = "removed precondition (hand_free ?r) of pick-up"
    drawn = DrawnDamage("removed_4", 0, "blocks-classic", DamagedDomain((change,), 3, figures, print_domain(DOMAIN)))
    return DamageResults(success, tuple(cells), (drawn,))


def test_table_has_success_cost_and_disagreement_by_damage() -> None:
    rows = damage_table(results()).rows
    assert [row[0] for row in rows] == ["0, sft cpo", "4 removed, sft cpo"]
    assert [row[1] for row in rows] == ["90%", "30%"]
    assert [row[3] for row in rows] == ["0.20", "0.80"]
    assert [row[5] for row in rows] == ["-", "50%"]


def test_report_shows_which_literal_and_the_domain_that_was_learnt_in(tmp_path: Path) -> None:
    [row] = drawn_table(results()).rows
    assert "(hand_free ?r) of pick-up" in row[0] and row[1] == "3" and row[2:] == ("90%", "50%", "100%", "25%")
    report = damage_report(results())
    assert "90%" in report.result and "30% with 4 literals removed" in report.result
    page, printed = render_page(report), format_report(report)
    assert "hand_free" in printed and "(define (domain blocks-classic)" in page and "<svg" in page


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    reporting = Reporting(DamageResults, damage_report, "ablation")
    reporting.write(results(), tmp_path)
    assert reporting.read(tmp_path) == results()


def test_results_of_a_variant_that_was_not_run_are_left_out() -> None:
    less = replace(results(), measured=())
    assert [row[3] for row in damage_table(less).rows] == ["-", "-"]

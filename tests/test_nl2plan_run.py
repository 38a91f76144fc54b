"""The pipeline nl2plan from its texts to its report, with the script for a speaker."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from modelled import Dying, Killed
from pydantic import ValidationError

from pipelines.nl2plan import PIPELINE, nl2plan
from pipelines.stages.modelling import interpretation_of
from pipelines.trials.speaking import SpeakingSession, cost_estimate, speaker_key, spent_in
from plansmith.cli import main
from plansmith.config.generation import SamplingConfig
from plansmith.config.nl2plan import NL2PlanConfig
from plansmith.config.planner import PlannerConfig
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import ModelledPlanRow, ModelledTaskRow, ModelledVerdictRow, ModellingCallRow, ModellingTaskRow
from plansmith.errors import BadInputError, ConfigError
from plansmith.generation import Answers, Completion, FinishReason, Generator
from plansmith.judging.interpretation import propose
from plansmith.judging.modelled import plan_task
from plansmith.modelling.budget import BudgetSpentError
from plansmith.modelling.calls import CallLog
from plansmith.modelling.folder import digest
from plansmith.modelling.growing import lacks_of
from plansmith.modelling.pages import ArmOfTask, task_page
from plansmith.modelling.products import DomainSketch, Parameter, Predicate, ProblemSketch, TypeNode, TypeTree
from plansmith.modelling.references import TASKS_FOLDER, read_references
from plansmith.modelling.script import Asked, Script, ScriptedGenerator
from plansmith.modelling.speaking import Speaker
from plansmith.modelling.steps import RowProducts, make_all
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.parser import parse_step
from plansmith.pipeline import find_pipeline
from plansmith.planners import FastDownward
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.nl2plan_report import SCRIPTED, nl2plan_report
from plansmith.report.nl2plan_results import Cost, NL2PlanResults, _cost, nl2plan_results
from plansmith.report.render import format_report
from plansmith.report.sections import Table
from plansmith.report.statistics import area_under_roc
from plansmith.resources import Resources
from plansmith.stages import run_stages


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of the smallest preset."""
    runs = tmp_path_factory.mktemp("runs")
    assert main(["run", "nl2plan", "--preset", "smoke", "--runs", str(runs)]) == 0
    return runs / "nl2plan-smoke"


def results_of(run: Path) -> NL2PlanResults:
    """Return what a run has reached."""
    return PIPELINE.reporting.read(run)


def test_nl2plan_smoke_all_fifteen_tasks_are_right_and_say_that_they_are_scripted(smoke: Path) -> None:
    results = results_of(smoke)
    assert (len(results.tasks), results.arms["nl2plan"], results.arms["one_call"]) == (15, 15, 15)
    assert (results.tests["one_call"].only_before, results.tests["one_call"].only_after) == (0, 0)
    assert {task.confirmed for task in results.tasks.values()} == {"names"}
    optima = {name: task.optimum for name, task in results.tasks.items()}
    for domain in ("blocksworld", "tyreworld", "household"):
        assert [optima[f"{domain}-{level}"] for level in ("easy", "medium", "hard")] == [4, 8, 12]
    assert [optima[f"isr-{level}"] for level in ("easy", "medium", "hard")] == [4, 8, 11]
    page = (smoke / "report" / "index.html").read_text()
    assert SCRIPTED.split(":")[0] in page


def test_nl2plan_smoke_results_have_the_names_that_are_promised(smoke: Path) -> None:
    results = json.loads((smoke / "report" / "results.json").read_text())
    task = results["tasks"]["blocksworld-easy"]
    promised = {"status", "right", "confirmed", "plan", "optimum", "calls", "tokens", "faults", "feedback"}
    assert promised <= set(task)
    assert {"arms", "cost", "tasks"} <= set(results)
    assert task["faults"] == {"param_types": 2, "predicate_usage": 2, "pred_nargs": 1}  # two passes of step 4
    assert task["feedback"] == {"construction: no effect": 2}
    assert results["tasks"]["blocksworld-medium"]["calls"].keys() == {"task"}  # the domain is the easy task's


def test_nl2plan_cost_is_told_by_step_and_adds_up(smoke: Path) -> None:
    results = json.loads((smoke / "report" / "results.json").read_text())
    by_step, whole = results["cost_by_step"], results["cost"]
    assert {"types", "construction", "task"} <= set(by_step)
    for name in ("calls", "input_tokens", "output_tokens"):
        assert sum(cost[name] for cost in by_step.values()) == whole[name] > 0
    assert whole["cached_tokens"] is None, "the script knows nothing beforehand"


def test_nl2plan_cost_of_what_a_server_knew_already_has_a_price_of_its_own() -> None:
    counts = [(1_000_000, 500_000, 400_000, 100_000), (1_000_000, 0, None, None)]
    calls = [ModellingCallRow("t", 1, "", "types", "", "draft", "[]", (), "", "stop", "m", *own, 1.5) for own in counts]
    prices = {"input": 2.0, "cached": 0.5, "output": 8.0}
    cost = _cost(calls, prices)
    assert (cost.cached_tokens, cost.reasoning_tokens, cost.seconds) == (400_000, 100_000, 3.0)
    assert cost.money == pytest.approx(1.6 * 2 + 0.4 * 0.5 + 0.5 * 8)
    assert _cost(calls, {"input": 2.0, "output": 8.0}).money == pytest.approx(2 * 2 + 0.5 * 8)
    assert _cost(calls[1:], {}) == Cost(1, 1_000_000, 0, None, None, 1.5, None)


def test_nl2plan_smoke_has_a_page_of_each_task_with_every_call(smoke: Path) -> None:
    [page] = smoke.glob("artifacts/judge-*/pages/isr-easy.md")
    text = page.read_text()
    assert text.count("\n### ") >= 14
    assert "construction 1/jump repair" in text


def sections_of_page(page: str) -> dict[str, list[str]]:
    """Return the headings of a page below each of its arms, the steps' below an empty name; fences are read past."""
    found, fence = {"": list[str]()}, ""
    for line in page.splitlines():
        if fence or line.startswith("```"):
            fence = fence or line.removesuffix("text")
            fence = "" if line == fence else fence
        elif line.startswith("# ") and ", " in line:
            found[line.partition(", ")[2]] = []
        elif line.startswith("##"):
            found[list(found)[-1]].append(line)
    return found


def test_nl2plan_page_of_a_task_has_every_call_of_each_arm_with_its_faults_plan_and_verdict(tmp_path: Path) -> None:
    config = NL2PlanConfig.model_validate({
        "tasks": {"folder": one_task(tmp_path / "tasks")}, "one_call": True, "unchecked": True, "zero_shot": True,
        "speaker": {"script": True, "faults": {"task": ("pred_nargs",), "one_call": ("cut",)}},
    })  # fmt: skip
    with SpeakingSession(config, tmp_path) as session:
        done = run_stages(nl2plan(config), root=tmp_path / "artifacts", resources=session)
    page = (done["judge"].path("pages") / "isr-easy.md").read_text()
    arms = sections_of_page(page)
    assert list(arms) == ["", "unchecked", "one_call", "zero_shot"]
    calls = {arm: [line.partition(". ")[2] for line in lines if line.startswith("### ")] for arm, lines in arms.items()}
    assert sum(map(len, calls.values())) == sum(
        len(own.rows(ModellingCallRow, "calls")) for own in done.values() if "calls.parquet" in own.manifest.files
    )
    assert calls[""].count("task repair") == 1 and not {"one_call draft", "zero_shot draft"} & set(calls[""])
    assert {"types draft", "construction 2/jump draft", "task draft"} <= set(calls["unchecked"])
    assert not any("repair" in call for call in calls["unchecked"])
    assert (calls["one_call"], calls["zero_shot"]) == (["one_call draft"], ["zero_shot draft"])
    steps, unchecked, one_call, zero_shot = page.split("\n# isr-easy")
    assert "- task: error messages: 1\n" in steps and "solved; right, confirmed by names" in steps
    assert "- task: accepted with pred_nargs" in unchecked and "refused; not shown to be right" in unchecked
    assert "refused; not shown to be right" in one_call and "missing ')'" in one_call.partition("## domain.pddl")[0]
    assert "I would take these actions: jump" in zero_shot


def test_nl2plan_page_of_a_task_has_no_heading_below_which_nothing_stands() -> None:
    row = ModellingTaskRow("t", "d", "easy", "A text.", "", "", None)
    verdicts = [ModelledVerdictRow("t", arm, "unsolvable", False, "", (), "") for arm in ("rules", "nl2plan")]
    assert task_page(row, [ArmOfTask(verdict) for verdict in verdicts]) == (
        "# t\n\nA text.\n\n## Plan (nl2plan)\n\nunsolvable; not shown to be right\n\n"
        "# t, rules\n\n## Plan (rules)\n\nunsolvable; not shown to be right\n"
    )


def test_nl2plan_smoke_again_reuses_every_stage(smoke: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "nl2plan", "--preset", "smoke", "--runs", str(smoke.parent), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines() if "  from " in line] == ["reused"] * 13
    assert "estimate, if nothing had to be mended" in said


def test_nl2plan_paper_preset_is_the_papers() -> None:
    config = PIPELINE.settings("paper")
    modelling = config.modelling
    assert (modelling.checks, modelling.max_error_messages, modelling.max_validations) == ("paper", 8, 8)
    assert (modelling.passes, modelling.feedback, config.answers.temperature) == (2, "model", 0)
    assert (config.tasks.domain, config.planner.search, config.zero_shot) == ("easy", "lama-first", True)
    names = [stage.name for stage in nl2plan(config)]
    assert names == ["tasks", "types", "hierarchy", "actions", "construct_1", "construct_2", "prune", "task", "plan",
                     "zero_shot", "judge"]  # fmt: skip


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("speaker.folder=my-model", "one speaker"),
        ("speaker.script=false", "mistakes of the script"),
        ("speaker.url=http://localhost/v1", "one speaker"),
        ("speaker.replay=x", "one speaker"),
        ("speaker.prices={input: -1}", "prices"),
        ("modelling.feedback=person", "one task at a time"),
        ("tasks.domain=edited", "tasks.edits"),
    ],
)
def test_nl2plan_settings_that_do_not_fit_are_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PIPELINE.settings("smoke", overrides=[override])


def test_nl2plan_run_without_anybody_to_ask_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "nl2plan", "--preset", "paper", "--runs", str(tmp_path)]) == 2
    assert "nobody to ask" in capsys.readouterr().err


def test_nl2plan_a_planned_mistake_that_nobody_can_make_is_refused() -> None:
    with pytest.raises(BadInputError):
        interpretation_of("{", where="x.json")
    assert find_pipeline("nl2plan").name == "nl2plan"


def one_task(folder: Path, domain: str = "isr") -> str:
    """Return a folder of the easy task of a domain alone."""
    (folder / domain).mkdir(parents=True)
    for name in ("domain.md", "domain.pddl", "easy.md", "easy.pddl"):
        shutil.copy(TASKS_FOLDER / domain / name, folder / domain / name)
    return str(folder)


def test_nl2plan_by_rules_reads_no_free_text_and_says_why(tmp_path: Path) -> None:
    config = NL2PlanConfig.model_validate({
        "tasks": {"folder": one_task(tmp_path / "tasks")}, "speaker": {"script": True}, "zero_shot": False,
        "rules": True,
    })  # fmt: skip
    with SpeakingSession(config, tmp_path) as session:
        done = run_stages(nl2plan(config), root=tmp_path / "artifacts", resources=session)
    [planned], results = (
        done["plan_rules"].rows(ModelledPlanRow),
        nl2plan_results(RunSoFar("nl2plan", config, "", done)),
    )
    assert (planned.status, planned.plan) == ("refused", ())
    assert results is not None
    assert (results.arms, results.tests) == ({"nl2plan": 1, "rules": 0}, {})
    assert "line 1: not the beginning of a domain in words" in (done["judge"].path("pages") / "isr-easy.md").read_text()
    assert "No model but rules (knows the templates): 0 of 1" in format_report(nl2plan_report(results))


def test_nl2plan_recorded_and_replayed_has_the_same_verdicts_and_every_table_says_so(tmp_path: Path) -> None:
    cassette, found = str(tmp_path / "run.cassette"), list[NL2PlanResults | None]()
    tasks = {"folder": one_task(tmp_path / "tasks")}
    for speaker in ({"script": True, "record": cassette}, {"replay": cassette}):
        config = NL2PlanConfig.model_validate({"tasks": tasks, "speaker": speaker})
        folder = tmp_path / str(len(found))
        with SpeakingSession(config, folder) as session:
            done = run_stages(nl2plan(config), root=folder / "artifacts", resources=session)
        found.append(nl2plan_results(RunSoFar("nl2plan", config, "", done)))
    late = NL2PlanConfig.model_validate({"tasks": tasks, "speaker": {"script": True, "record": f"{cassette}.late"}})
    with SpeakingSession(late, tmp_path / "0") as session, pytest.raises(BadInputError, match="begun without one"):
        session.generator(None, speaker_key(late))
    made, played = found
    assert made is not None and played is not None
    assert played.tasks == made.tasks
    assert (made.is_played, played.is_played, played.is_scripted) == (False, True, True)
    assert played.speaker.startswith("script (no model) (cassette, scripted 20")
    sections = nl2plan_report(played).sections
    tables = [section for section in sections if any(isinstance(block, Table) for block in section.blocks)]
    assert len(tables) >= 4
    assert all(played.speaker in section.note for section in tables[:4])


def test_nl2plan_budget_of_a_run_counts_every_stage_and_goes_on_with_more(tmp_path: Path) -> None:
    tasks, asked = {"folder": one_task(tmp_path / "tasks")}, list[int]()
    for most in (3, 3, 100):
        config = NL2PlanConfig.model_validate({"tasks": tasks, "speaker": {"script": True, "max_calls": most}})
        with SpeakingSession(config, tmp_path) as session:
            ending: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
            with pytest.raises(BudgetSpentError) if most == 3 else ending:
                run_stages(nl2plan(config), root=tmp_path / "artifacts", resources=session)
        asked.append(spent_in(tmp_path).calls)
    foreseen = re.search(r"(\d+) calls", cost_estimate(config))
    assert foreseen is not None
    assert asked == [3, 3, int(foreseen[1])]


def test_nl2plan_estimate_has_every_draft_and_the_steps_with_something_left_out(tmp_path: Path) -> None:
    tasks = {"folder": one_task(tmp_path / "tasks")}

    def calls(**more: Any) -> list[int]:
        """Return the calls that are foreseen, and those at most."""
        told = {"tasks": tasks, "speaker": {"script": True}, "zero_shot": False, **more}
        return [int(n) for n in re.findall(r"(\d+) calls", cost_estimate(NL2PlanConfig.model_validate(told)))]

    [foreseen, most] = calls()  # of steps 1 to 5 with one action, twice: 4 + 2 answers, each with advice
    assert (foreseen, most) == (12, 5 * 11 + 10)
    assert calls(drafts=3) == [3 * foreseen, 3 * most]
    assert calls(unchecked=True, unadvised=True) == [foreseen, most + 5 * 3 + 3 + 5 * 9 + 8]
    assert calls(modelling={"planner_feedback": 2, "grows": True}) == [foreseen, most + 2 * (9 + 8) + 4 * 9 + 10]


@pytest.mark.parametrize("passes", [2, 1])
def test_nl2plan_planner_feedback_gives_a_task_a_domain_of_its_own_and_a_plan(tmp_path: Path, passes: int) -> None:
    folder = one_task(tmp_path / "tasks", "isr-assisted")
    faults = {"construction/add": ("no_effect",)}
    verdicts = []
    for turns in (0, 2):
        config = NL2PlanConfig.model_validate({
            "tasks": {"folder": folder}, "speaker": {"script": True, "faults": faults},
            "modelling": {"planner_feedback": turns, "passes": passes}, "zero_shot": False,
        })  # fmt: skip
        with SpeakingSession(config, tmp_path) as session:
            done = run_stages(nl2plan(config), root=tmp_path / "artifacts", resources=session)
        results = nl2plan_results(RunSoFar("nl2plan", config, "", done))
        assert results is not None
        verdicts.append(results.tasks["isr-assisted-easy"])
    assert [(own.status, own.right) for own in verdicts] == [("unsolvable", False), ("solved", True)]
    assert verdicts[1].calls["construction"] > verdicts[0].calls["construction"]
    assert {name for name in done if "again" in name} == {"look_again_1", "look_again_2"}


def test_nl2plan_domain_that_grows_gets_the_words_that_problems_lack_and_earlier_ones_are_written_again(
    tmp_path: Path,
) -> None:
    folder, found = tmp_path / "tasks", list[NL2PlanResults]()
    shutil.copytree(TASKS_FOLDER / "tyreworld", folder / "tyreworld")
    faults = {"actions": ("one_less",)}  # nobody inflates, and nothing is said of it
    for grows in (False, True):
        config = NL2PlanConfig.model_validate({
            "tasks": {"folder": str(folder)}, "speaker": {"script": True, "faults": faults},
            "modelling": {"grows": grows, "max_validations": 2}, "zero_shot": False,
        })  # fmt: skip
        with SpeakingSession(config, tmp_path / str(grows)) as session:
            done = run_stages(nl2plan(config), root=tmp_path / str(grows), resources=session)
        results = nl2plan_results(RunSoFar("nl2plan", config, "", done))
        assert results is not None
        found.append(results)
    assert not found[0].tasks["tyreworld-easy"].right
    assert [found[1].tasks[f"tyreworld-{level}"].right for level in ("easy", "medium", "hard")] == [True] * 3
    asked = [(json.loads(row.messages), row) for row in done["grow"].rows(ModellingCallRow, "calls")]
    assert {row.kind for _, row in asked} == {"growth", "draft", "feedback"}  # inflate is written for the first time
    [drafted] = {row.subject for _, row in asked if row.kind == "draft"}
    assert drafted == "2/inflate"
    told = next(messages[-1][1] for messages, row in asked if row.kind == "growth")
    assert "- the predicate inflated, in (inflated spare1)" in told
    assert len(done["task_grown"].rows(ModelledTaskRow)) == 3
    assert found[0].grown == {} and [*found[1].grown] == ["tyreworld-easy"]
    assert "the predicate inflated, in (inflated spare1)" in format_report(nl2plan_report(found[1]))
    assert [step.step for row in done["grow"].rows(ModelledTaskRow) for step in row.steps] == ["growing"]


def test_nl2plan_domain_that_lacks_nothing_does_not_grow(tmp_path: Path) -> None:
    config = NL2PlanConfig.model_validate({
        "tasks": {"folder": one_task(tmp_path / "tasks")}, "speaker": {"script": True}, "zero_shot": False,
        "modelling": {"grows": True},
    })  # fmt: skip
    with SpeakingSession(config, tmp_path / "run") as session:
        done = run_stages(nl2plan(config), root=tmp_path / "run", resources=session)
    for stage in ("grow", "task_grown"):
        assert not done[stage].rows(ModelledTaskRow) and not done[stage].rows(ModellingCallRow, "calls")


@pytest.mark.parametrize(
    ("init", "kind", "lacks"),
    [
        ("(at a b)", "place", ()),
        ("(at a b) (near b a)", "place", ("the predicate near, in (near b a)",)),
        ("(at a b)", "town", ("the type town, of b",)),
        ("(AND (At a b))", "place", ()),
        ("(= (total-cost) 0) (at a b", "", ("the predicate total-cost, in (total-cost)",)),
    ],
)
def test_lacks_of_a_problem_are_the_types_and_predicates_that_its_domain_has_not(
    init: str, kind: str, lacks: tuple[str, ...]
) -> None:
    domain = DomainSketch(tree=TypeTree((TypeNode("place"),)), predicates=(Predicate("at", "(at ?x ?y - place)"),))
    problem = ProblemSketch((Parameter("a", "place"), Parameter("b", kind)), init, "(and (at b a) (not (at a b)))")
    assert lacks_of(problem, domain) == lacks


def texts_asked(done: dict[str, Artifact], stage: str) -> list[str]:
    """Return the first question of each call of a stage."""
    return [json.loads(row.messages)[0][1] for row in done[stage].rows(ModellingCallRow, "calls")]


def test_nl2plan_domain_of_all_texts_or_with_edits_is_that(tmp_path: Path) -> None:
    folder = Path(one_task(tmp_path / "tasks"))
    for name in ("medium.md", "medium.pddl"):
        shutil.copy(TASKS_FOLDER / "isr" / name, folder / "isr" / name)
    easy, medium = (own for own in read_references(folder))
    edits = tmp_path / "edits" / "isr"
    edits.mkdir(parents=True)
    speaker = {"script": True}

    def run(**tasks: str) -> dict[str, Artifact]:
        config = NL2PlanConfig.model_validate(
            {"tasks": {"folder": str(folder), **tasks}, "speaker": speaker, "zero_shot": False}
        )
        stages = [stage for stage in nl2plan(config) if stage.name in ("tasks", "types")]
        with SpeakingSession(config, tmp_path) as session:
            return run_stages(stages, root=tmp_path / "artifacts", resources=session)

    easy_only, whole, own = run(domain="easy"), run(domain="whole"), run(domain="own")
    assert not any(medium.task_text.strip() in text for text in texts_asked(easy_only, "types"))
    for text in texts_asked(whole, "types"):
        assert easy.text in text
        assert text.count(easy.domain_text.strip()) == 1
        assert medium.task_text.strip() in text
    assert {row.task for row in own["types"].rows(ModelledTaskRow)} == {"isr-easy", "isr-medium"}
    [made] = easy_only["types"].rows(ModelledTaskRow)
    types = made.products[0].text
    (edits / "1-types.md").write_text(f"<!-- edit of {digest(types)} -->\n{types}\n- stone: by hand\n")
    [made] = run(domain="edited", edits=str(edits.parent))["types"].rows(ModelledTaskRow)
    assert "- stone: by hand" in made.products[0].text
    (edits / "1-types.md").write_text(f"<!-- edit of {'0' * 16} -->\n{types}\n")
    with pytest.raises(BadInputError, match="has changed since"):
        run(domain="edited", edits=str(edits.parent))
    edits.rename(edits.parent / "irs")
    with pytest.raises(BadInputError, match=r"irs/1-types.md: edits of no domain\n.*\n.*one of isr"):
        run(domain="edited", edits=str(edits.parent))


def test_nl2plan_an_edit_is_in_the_keys_of_its_own_step_and_of_what_follows(tmp_path: Path) -> None:
    def keys_of(**tasks: str) -> dict[str, str]:
        config = NL2PlanConfig.model_validate({"speaker": {"script": True}, "tasks": tasks})
        return {stage.name: stage.key for stage in nl2plan(config)}

    (tmp_path / "isr").mkdir()
    (tmp_path / "isr" / "3-actions.md").write_text(f"<!-- edit of {'0' * 16} -->\n### add\n")
    before, after = keys_of(domain="easy"), keys_of(domain="edited", edits=str(tmp_path))
    changed = {name for name in before if before[name] != after[name]}
    assert not changed & {"tasks", "types", "hierarchy"} and {"actions", "construct_1", "task"} <= changed


class Lending(Resources):
    """Lends one who answers, and nothing else."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    def generator(self, policy: Any, engine: Any) -> Generator:
        """Return who answers."""
        return self._generator


def tables_of(artifacts: dict[str, Artifact]) -> dict[str, str]:
    """Return the hash of every table and page of a run; how long an answer took is none of it."""
    return {
        f"{name}/{file}": entry.sha256
        for name, artifact in artifacts.items()
        for file, entry in artifact.manifest.files.items()
        if not file.startswith("calls")
    }


def exchanges_of(artifacts: dict[str, Artifact]) -> list[ModellingCallRow]:
    """Return every question of a run with its answer, whoever was asked first, and however long it took."""
    return [
        replace(row, seconds=0.0)
        for artifact in artifacts.values()
        if "calls.parquet" in artifact.manifest.files
        for row in artifact.rows(ModellingCallRow, "calls")
    ]


def test_nl2plan_killed_after_every_second_answer_has_equal_tables_and_asks_nothing_twice(tmp_path: Path) -> None:
    folder = one_task(tmp_path / "tasks", "isr-assisted")
    faults = {"construction/add": ("cut",), "task": ("pred_nargs",)}
    told = {"tasks": {"folder": folder}, "speaker": {"script": True, "faults": faults}, "unchecked": True}
    config = NL2PlanConfig.model_validate({**told, "unadvised": True})
    script, asked = ScriptedGenerator(Script(read_references(tmp_path / "tasks"), faults)), list[str]()
    stages, n_deaths = nl2plan(config), 0
    while True:
        try:
            done = run_stages(stages, root=tmp_path / "killed", resources=Lending(Dying(script, 2, asked)))
            break
        except Killed:
            n_deaths += 1
    undisturbed = run_stages(stages, root=tmp_path / "whole", resources=Lending(script))
    assert n_deaths > 5
    assert len(asked) == len(set(asked))
    assert tables_of(done) == tables_of(undisturbed)
    assert exchanges_of(done) == exchanges_of(undisturbed)
    results = nl2plan_results(RunSoFar("nl2plan", config, "", done))
    assert results is not None
    assert results.cost.calls == sum(cost.calls for cost in results.cost_by_step.values()) == len(asked)
    assert (len(exchanges_of(done)), len(asked)) == (47, 25)  # of the other arms, what they lack brings something new
    again = NL2PlanConfig.model_validate({**told, "modelling": {"max_validations": 7}})
    run_stages(nl2plan(again), root=tmp_path / "killed", resources=Lending(Dying(script, 0, asked)))  # asks nothing


@pytest.mark.parametrize("is_own", [False, True], ids=["given", "learnt"])
def test_nl2plan_prompt_without_room_ends_a_run_but_for_a_policy_of_its_own(is_own: bool, tmp_path: Path) -> None:
    script = ScriptedGenerator(Script(read_references(domains=("isr",)), {}))

    class Small:
        """Has no room for step 4."""

        def complete(self, conversations: Any, sampling: Any, *, seeds: Any, description: Any = None) -> Answers:
            for number, own in script.complete(conversations, sampling, seeds=seeds, description=description):
                is_full = Asked.by(conversations[number]).step == "construction"
                none = Completion("", FinishReason.NO_ROOM, "m", 0, prompt_tokens=9001)
                yield number, [none] if is_full else own

    config = NL2PlanConfig.model_validate(
        {"tasks": {"folder": one_task(tmp_path / "tasks")}, "speaker": {"script": True}}
    )
    if is_own:
        log = CallLog.open(tmp_path / "calls.jsonl")
        speaker = Speaker(Small(), SamplingConfig(), 0, "", lambda _: log, owns_window=True)
        own = read_references(domains=("isr",))[0]
        [(_, records)] = speaker.converse({own.name: make_all(own.text, RowProducts(), config.modelling)})
        assert {record.faults for record in records if record.step == "construction"} == {("header_inclusion",)}
    else:
        with pytest.raises(BadInputError, match="isr-easy, step construction: a text too long") as raised:
            run_stages(nl2plan(config), root=tmp_path / "run", resources=Lending(Small()))
        assert "a prompt of 9001 tokens" in str(raised.value)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "isr-easy.json",
            '{"actions": {"leap": [[{"action": "hop", "arguments": [0]}]]}}',
            "unknown action.*got: hop/1",
        ),
        ("isr-easy.json", '{"objects": {"stone": "v99"}}', "unknown objects.*got: v99"),
        ("isr-easy.plan", "(hop v1)", "other words"),
    ],
    ids=["action", "object", "plan"],
)
def test_nl2plan_interpretation_of_what_the_reference_does_not_know_is_refused_before_anything_is_asked(
    file: str, text: str, message: str, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    said.mkdir()
    (said / file).write_text(text)
    config = {"tasks": {"folder": one_task(tmp_path / "tasks")}, "speaker": {"script": True}}
    with pytest.raises(BadInputError, match=f"(?s){file}: .*{message}"):
        nl2plan(NL2PlanConfig.model_validate({**config, "interpretations": str(said)}))


def test_proposal_takes_an_action_that_the_reference_has_no_word_for_as_nothing() -> None:
    own = next(one for one in read_references() if one.name == "blocksworld-easy")
    task = PlanningTask.from_text(own.domain_pddl, own.problem_pddl)
    with FastDownward(PlannerConfig(search="lama-first")) as planner:
        plan = [parse_step(step) for step in plan_task(planner, own.domain_pddl, own.problem_pddl).plan]
    objects = dict.fromkeys(name for step in plan for name in step.arguments)
    seen = [*plan[:1], PlanStep("look-around", ()), *plan[1:], PlanStep("look-around", ())]
    found = propose(seen, objects, task)
    assert found is not None
    assert found.actions["look-around"] == ((),)
    assert {step.name for step in plan} == found.actions.keys() - {"look-around"}
    assert propose(seen[:-2], objects, task) is None


class OddDraft:
    """The script, one of whose drafts forgets what actions change; who asks is told apart by the seed."""

    def __init__(self, odd_seed: int) -> None:
        self._odd_seed = odd_seed
        self._right = ScriptedGenerator(Script(read_references(domains=("isr-assisted",)), {}))
        self._wrong = ScriptedGenerator(
            Script(read_references(domains=("isr-assisted",)), {"construction/add": ("no_effect", "no_effect")})
        )

    def complete(self, conversations: Any, sampling: Any, *, seeds: Any, description: str | None = None) -> Answers:
        """Yield answers; see `plansmith.generation.Generator`."""
        speaker = self._wrong if set(seeds) == {self._odd_seed} else self._right
        return speaker.complete(conversations, sampling, seeds=seeds, description=description)


@pytest.mark.parametrize("odd", [1, 3])
def test_nl2plan_drafts_that_agree_are_right_and_the_odd_one_is_told(tmp_path: Path, odd: int) -> None:
    config = NL2PlanConfig.model_validate({
        "tasks": {"domains": ("isr-assisted",)}, "speaker": {"script": True}, "drafts": 3, "zero_shot": False,
    })  # fmt: skip
    stages = nl2plan(config)
    lent = Lending(OddDraft(odd - 1))
    done = run_stages(stages, root=tmp_path, resources=lent)
    results = nl2plan_results(RunSoFar("nl2plan", config, "test", done))
    assert results is not None
    pages = [sections_of_page(path.read_text()) for path in done["judge"].path("pages").iterdir()]
    assert [list(arms) for arms in pages] == [["", "draft_2", "draft_3"]] * 3
    asked = sum(line.startswith("### ") for arms in pages for lines in arms.values() for line in lines)
    assert asked == results.cost.calls
    found = results.agreement
    assert found is not None
    n = len(results.tasks)
    assert n == 3
    assert found.levels == [(0.5, 2 * n, 2 * n)]  # the odd draft has no plan, and knows none
    assert (found.first, found.chosen) == (n if odd == 3 else 0, n)
    assert found.area_under_roc is None  # all first drafts are alike
    assert (found.test.only_after, found.test.only_before) == (0 if odd == 3 else n, 0)
    assert results.arms["nl2plan"] == found.first
    assert sum(results.tasks["isr-assisted-easy"].calls.values()) < results.cost.calls / 3  # of the first draft alone
    told = format_report(nl2plan_report(results))
    assert f"the one most others agree with {n}" in told
    assert {stage.name for stage in stages} >= {"types", "types_draft_2", "plan_draft_3", "compare_drafts"}


def test_nl2plan_drafts_that_would_all_be_alike_are_refused() -> None:
    with pytest.raises(ValidationError, match="would all be alike"):
        NL2PlanConfig.model_validate({"drafts": 2, "speaker": {"folder": "/m"}})
    NL2PlanConfig.model_validate({"drafts": 2, "speaker": {"folder": "/m"}, "answers": {"temperature": 0.7}})


def test_area_under_roc_is_the_chance_that_a_right_one_scores_higher() -> None:
    assert area_under_roc([1.0, 0.5, 0.0], [True, True, False]) == 1.0
    assert area_under_roc([0.0, 1.0], [True, False]) == 0.0
    assert area_under_roc([0.5, 0.5, 1.0, 0.0], [True, False, True, False]) == (0.5 + 1 + 1 + 1) / 4
    assert area_under_roc([0.5, 1.0], [True, True]) is None

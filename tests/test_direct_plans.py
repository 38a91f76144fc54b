"""The control that answers texts with plans: its examples, its tokens, its judgement; and the grammar beside it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_feedback import artifact, run
from test_formalising import COMPACT, FIRST, JUDGING, NAMES, Lends, settings_of

from actors.formaliser import TextExampleWriter, TextWriter
from pipelines.nl_pddl_bench import PIPELINE
from pipelines.stages.direct_plans import (
    BudgetSettings,
    PlanTrialSettings,
    judge_plans_of_texts,
    match_tokens,
    rounds_of,
    try_plans,
)
from pipelines.stages.formalising import GRAMMAR, judge_texts, read_texts
from pipelines.stages.texts import TextExampleSettings, write_plan_examples
from pipelines.stages.training import SEQUENCES
from plansmith.config.formalisation import FormalisationConfig
from plansmith.data.artifacts import Artifact, ArtifactWriter, Provenance
from plansmith.data.rows import (
    ExampleKind,
    ExampleRow,
    FormalisedRow,
    ProblemRow,
    RolloutRow,
    SequenceRow,
    Split,
    TextRow,
    VerdictRow,
)
from plansmith.errors import BadInputError, ConfigError
from plansmith.generation import Conversation, plain_text
from plansmith.learning.sequence_files import StoredSequences
from plansmith.learning.sequences import supervised_sequence
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.parser import parse_problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import validate_plan
from plansmith.problems.library import load_domain
from plansmith.resources import Resources
from plansmith.text.formalisation import plan_answer, plan_prompt
from plansmith.text.loose_plans import read_loose_plan
from plansmith.text.statements import numbered_text

DOMAINS = ("ferry", "logistics", "rovers", "blocksworld")


@pytest.fixture(scope="module")
def said() -> dict[str, TextRow]:
    """Return a text of each domain, by its name: of D1, and of Dtest for a ferry."""
    rows = []
    for name in DOMAINS:
        loaded = load_domain(name)
        pddl = (print_domain(loaded.domain), print_problem(loaded.sample("L1", random.Random(2))))
        split = Split.TEST if name == "ferry" else Split.PHASE1
        rows.append(ProblemRow(name, f"form {name}", name, f"{name} L1", split, 0, *pddl, "sampler"))
    domains = {name: name for name in DOMAINS}
    writer = TextWriter(config=FIRST, formalisation=COMPACT, domains=domains, names=NAMES, seed=3)
    found = writer(rows)
    writer.close()
    return {row.problem_id: row for row in found}


def examples(row: TextRow, kind: ExampleKind, names: tuple[str, ...] = NAMES, texts: int = 2) -> list[ExampleRow]:
    return TextExampleWriter(formalisation=COMPACT, kind=kind, texts=texts, names=names, seed=7)([row])


def is_plan_of(response: str, problem_pddl: str, domain_name: str) -> bool:
    """Return whether a response, read as answers are, is a valid plan."""
    domain = load_domain(domain_name).domain
    found = read_loose_plan(response, domain)
    task = PlanningTask(domain, parse_problem(problem_pddl, domain))
    return found.fault is None and validate_plan(task, found.steps).is_valid


# --- examples


def test_plan_answer_is_an_action_a_line_and_its_prompt_names_what_is_asked() -> None:
    assert plan_answer([PlanStep("sail", ("a", "b")), PlanStep("debark", ())]) == "(sail a b)\n(debark)\n"
    domain = load_domain("ferry").domain
    assert plan_prompt(domain, " There is a car.\n", COMPACT) == "domain: ferry\n1 There is a car.\n2 plan:\n"
    full = plan_prompt(domain, "There is a car.", FormalisationConfig())
    assert "one ground action a line" in full and "Actions: (sail " in full and full.endswith("There is a car.\n")


@pytest.mark.parametrize("name", DOMAINS)
def test_plan_examples_have_the_words_of_the_others_and_a_plan_under_their_names(
    name: str, said: dict[str, TextRow]
) -> None:
    plans, problems = (examples(said[name], kind) for kind in (ExampleKind.PLAN_FROM_TEXT, ExampleKind.FORMALISE))
    assert [row.prompt.removesuffix("plan:\n") for row in plans] == [
        row.prompt.removesuffix("pddl:\n") for row in problems
    ]
    assert len({row.prompt for row in plans}) == len({row.response for row in plans}) == 2  # each under other names
    assert {row.kind for row in plans} == {ExampleKind.PLAN_FROM_TEXT}
    for plan, problem, other in zip(plans, problems, problems[::-1], strict=True):
        assert is_plan_of(plan.response, problem.response, name)
        assert plan.response.count("\n") == len(said[name].plan)
        assert not is_plan_of(plan.response, other.response, name)


def test_plan_examples_without_other_names_have_the_plan_as_it_is(said: dict[str, TextRow]) -> None:
    [example] = examples(said["ferry"], ExampleKind.PLAN_FROM_TEXT, names=(), texts=1)
    assert example.response == "".join(f"{step}\n" for step in said["ferry"].plan)


def test_plan_examples_leave_out_an_empty_plan(said: dict[str, TextRow]) -> None:
    assert examples(replace(said["ferry"], plan=()), ExampleKind.PLAN_FROM_TEXT) == []


def test_write_plan_examples_are_of_d1_alone(tmp_path: Path, said: dict[str, TextRow]) -> None:
    given = {"texts": artifact(tmp_path, "texts", ("rows", TextRow, list(said.values())))}
    settings = TextExampleSettings(texts=COMPACT, object_names=NAMES, copies=1)
    made = run(tmp_path, "write_plans", write_plan_examples, settings, Lends(lambda *_: None), **given)
    assert [row.problem_id for row in made.rows(ExampleRow, "plans")] == sorted(set(DOMAINS) - {"ferry"})


# --- tokens


@pytest.mark.parametrize(
    ("wanted", "rounds"),
    [(0, []), (1, [[2]]), (2, [[2]]), (3, [[0, 2]]), (10, [[0, 1, 2]]), (12, [[0, 1, 2], [2]]),
     (21, [[0, 1, 2], [0, 1, 2], [2]])],
)  # fmt: skip
def test_rounds_of_take_all_until_the_last_takes_what_is_lacking(wanted: int, rounds: list[list[int]]) -> None:
    lengths, order = np.array([3, 5, 2]), [2, 0, 1]  # 2, then 5, then 10 tokens
    assert [taken.tolist() for taken in rounds_of(lengths, order, wanted)] == rounds


def sequences(root: Path, name: str, *lengths: int) -> Artifact:
    """Return an artifact of sequences of so many tokens."""
    writer = ArtifactWriter(root, name, f"{name:x<40}")
    made = [supervised_sequence([1], [2] * (length - 1)).row(f"{name}-{k}") for k, length in enumerate(lengths)]
    writer.parts(SEQUENCES, SequenceRow).write("rows", made, SequenceRow)
    return writer.finish(Provenance(name, f"{name:x<40}", {}, {}, 0), wall_time_s=0.0)


def matched(root: Path, theirs: tuple[int, ...], plans: tuple[int, ...], longest: int = 50) -> StoredSequences:
    given = {"sequences": sequences(root, "problems", *theirs), "plans": sequences(root, "plans", *plans)}
    made = run(root, "match_tokens", match_tokens, BudgetSettings(longest_tokens=longest), Resources(), **given)
    return StoredSequences(made.parts(SEQUENCES))


def test_match_tokens_has_the_tokens_that_fine_tuning_trains_on_to_within_a_sequence(tmp_path: Path) -> None:
    found = matched(tmp_path, (40, 50, 51, 30), (10, 15, 60, 20))  # 120 of the first; 45 a round of the second
    assert sorted(set(found.lengths.tolist())) == [10, 15, 20]
    assert 120 <= found.lengths.sum() < 120 + 20
    counts = [found.lengths.tolist().count(length) for length in (10, 15, 20)]
    assert min(counts) >= 2 and max(counts) <= 3  # two whole rounds, and some of a third
    assert len(set(found.ids)) == len(found)
    assert found[0].token_ids.tolist() == [1] + [2] * (int(found.lengths[0]) - 1)


def test_match_tokens_without_a_sequence_that_fits_raises(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no text with its plan is short enough") as error:
        matched(tmp_path, (40,), (60, 70))
    assert error.value.cure is not None and "row_length_tokens" in error.value.cure


# --- answers


def judged(root: Path, text: TextRow, answer: str) -> VerdictRow:
    """Return the verdict on what is answered to a text."""
    asked: list[str] = []

    def write(messages: Conversation, seed: int) -> str:
        asked.append(plain_text(messages))
        return answer

    given = {"texts": artifact(root, "texts", ("rows", TextRow, [text])), "policy": artifact(root, "policy")}
    settings = settings_of(PlanTrialSettings, split=Split.TEST, texts=COMPACT)
    tried = run(root, "try_direct", try_plans, settings, Lends(write), **given)
    assert asked == [f"domain: ferry\n{numbered_text(text.text, 'plan')}"]
    told = {"rollouts": tried, "texts": given["texts"]}
    [row] = run(root, "judge_direct", judge_plans_of_texts, None, Resources(), **told).rows(VerdictRow)
    return row


@pytest.mark.parametrize("form", ["{}", "Here is the plan:\n```\n{}```\n", "<think>Let me see.</think>\n{}"])
def test_judge_plans_takes_the_plan_of_the_reference_however_it_is_dressed(
    tmp_path: Path, said: dict[str, TextRow], form: str
) -> None:
    text = said["ferry"]
    row = judged(tmp_path, text, form.format(plan_answer_of(text.plan)))
    assert row.is_valid and row.plan == text.plan


def test_judge_plans_refuses_one_that_stops_short_one_under_other_names_and_none(
    tmp_path: Path, said: dict[str, TextRow]
) -> None:
    text = said["ferry"]
    [other] = examples(text, ExampleKind.PLAN_FROM_TEXT, texts=1)
    wrong = {"short": plan_answer_of(text.plan[:-1]), "renamed": other.response, "problem": text.problem_pddl}
    for name, answer in wrong.items():
        assert not judged(tmp_path / name, text, answer).is_valid, name


def plan_answer_of(steps: tuple[str, ...]) -> str:
    return "".join(f"{step}\n" for step in steps)


def test_read_texts_are_right_as_far_as_the_grammar_reaches(tmp_path: Path, said: dict[str, TextRow]) -> None:
    right = said["ferry"]
    strange = replace(right, problem_id="strange", text="Ein Wagen soll auf die Fähre.")
    texts = artifact(tmp_path, "texts", ("rows", TextRow, [strange, *said.values()]))
    tried = run(tmp_path, "try_read", read_texts, None, Resources(), texts=texts)
    assert {row.policy_version for row in tried.rows(RolloutRow)} == {GRAMMAR}
    made = run(tmp_path, "judge_read", judge_texts, JUDGING, Resources(), rollouts=tried, texts=texts)
    rows = {row.problem_id: row for row in made.rows(FormalisedRow)}
    assert rows.keys() == {"ferry", "strange"}  # of the test texts
    assert rows["ferry"].outcome == "identical" and rows["ferry"].has_task_success and rows["ferry"].keeps_contract
    assert not rows["strange"].is_parsed


# --- stages and settings


def test_direct_plans_start_where_fine_tuning_does_with_its_optimiser_and_leave_the_rest_as_it_is() -> None:
    stages, others = ({stage.name: stage for stage in PIPELINE.stages(PIPELINE.settings("laptop", overrides=given))}
                      for given in ((), ("has_direct_plans=false",)))  # fmt: skip
    own = {"write_plans", "encode_plans", "match_tokens", "direct", "try_direct", "judge_direct"}
    assert stages.keys() - others.keys() == own
    assert all(stages[name].key == stage.key for name, stage in others.items())
    direct, sft = stages["direct"], stages["sft"]
    assert direct.inputs["policy"] is sft.inputs["policy"] is stages["initial_policy"]
    assert direct.settings == sft.settings and direct.run is sft.run
    assert stages["write_plans"].settings == stages["write_examples"].settings
    assert stages["match_tokens"].inputs["sequences"] is sft.inputs["sequences"]
    assert stages["match_tokens"].settings.longest_tokens == sft.settings.numerics.row_length_tokens
    assert stages["try_direct"].settings.sampling == stages["try_sft"].settings.sampling


def test_direct_plans_and_the_grammar_are_in_the_presets_with_all_arms_alone() -> None:
    on = {name: (config.has_direct_plans, config.evaluation.tries_grammar)
          for name in ("smoke", "demo", "laptop", "paper") for config in (PIPELINE.settings(name),)}  # fmt: skip
    assert on == {"smoke": (True, True), "demo": (False, False), "laptop": (True, True), "paper": (False, False)}


def test_tests_of_levels_never_trained_on_alone_are_refused() -> None:
    levels = ("problems.domains=[{domain: ferry, level: L1, phase1: 9}, {domain: ferry, level: L2, test: 4}]",)
    with pytest.raises(ConfigError, match=r"no level that is learnt from has test problems.*ferry L2 have phase1=0"):
        PIPELINE.settings("smoke", overrides=levels)


def test_texts_of_levels_never_trained_on_have_names_for_all_objects_in_the_presets() -> None:
    for preset in ("smoke", "laptop"):
        problems = PIPELINE.settings(preset).problems
        untrained = [level for level in problems.domains if not level.phase1 + level.phase2]
        assert {level.domain for level in untrained} > {"blocksworld"}
        for level in untrained:
            drawn = [
                load_domain(level.domain).sample(level.level, random.Random(k), sizes=level.sizes) for k in range(40)
            ]
            assert max(len(problem.objects) for problem in drawn) <= len(problems.object_names), level.name

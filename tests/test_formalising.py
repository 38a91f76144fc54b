"""Stages that let a policy write problems, judge them and hand them back; who answers is a stand-in."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stand_in_generator import StandInGenerator
from test_feedback import artifact, run

from actors.formaliser import TextWriter
from pipelines.nl_pddl_bench import PIPELINE
from pipelines.stages.formalising import VERDICTS, RepairSettings, TextTrialSettings, judge_texts, repair, try_texts
from pipelines.stages.preference import HELD_OUT, PairSettings, collect_failures, write_pairs
from pipelines.stages.texts import TextExampleSettings, write_text_examples
from plansmith.config.formalisation import FormalisationConfig, JudgingConfig
from plansmith.config.generation import SamplingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.training import EngineNumerics
from plansmith.data.artifacts import Artifact, ArtifactWriter
from plansmith.data.rows import (
    ExampleKind,
    ExampleRow,
    FormalisedRow,
    PairRow,
    PerturbedRow,
    ProblemRow,
    RolloutRow,
    Split,
    TextRow,
)
from plansmith.errors import ConfigError
from plansmith.generation import Conversation, Generator, plain_text
from plansmith.judging.formalisation import Fault, Readability
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.problems.library import load_domain
from plansmith.resources import Resources
from plansmith.stages import Stage, StageContext

FIRST = PlannerConfig(search="first")
JUDGING = JudgingConfig(planner=FIRST)
COMPACT = FormalisationConfig(detail="name", rendering="compact")
NAMES = tuple("abcdefghijkl")
ENGINE = EngineNumerics(max_model_len=512)
N_TEXTS = 4


@pytest.fixture(scope="module")
def texts() -> list[TextRow]:
    """Return four texts about a ferry: two tests, one to pair, one to learn from."""
    loaded = load_domain("ferry")
    rows = []
    for number, split in enumerate((Split.TEST, Split.TEST, Split.PHASE2, Split.PHASE1)):
        problem = loaded.sample("L1", random.Random(number))
        pddl = (print_domain(loaded.domain), print_problem(problem))
        rows.append(ProblemRow(f"p{number}", f"f{number}", "ferry", "ferry L1", split, 0, *pddl, "sampler"))
    writer = TextWriter(config=FIRST, formalisation=COMPACT, domains={"ferry": "ferry"}, names=NAMES, seed=3)
    found = writer(rows)
    writer.close()
    assert len(found) == N_TEXTS
    return found


class Lends(Resources):
    """Lends a generator, and works on rows here."""

    def __init__(self, write: Callable[[Conversation, int], str | None]) -> None:
        self.stand_in = StandInGenerator(write, window=4096)

    def generator(self, policy: Any, engine: Any) -> Generator:
        return self.stand_in

    def map_rows(self, rows: Sequence[Any], row_type_in: type, worker: Any, **options: Any) -> None:
        options["shards"].append(worker(**options["worker_settings"])(rows))


def settings_of(kind: type[Any], sampling: SamplingConfig | None = None, **more: Any) -> Any:
    return kind(sampling=sampling or SamplingConfig(max_new_tokens=2000), engine=ENGINE, prompting="compact", **more)


def tried(
    root: Path,
    texts: list[TextRow],
    write: Callable[[Conversation, int], str | None],
    judging: JudgingConfig = JUDGING,
) -> dict[str, Artifact]:
    """Return the answers to the test texts, judged."""
    given = {"texts": artifact(root, "texts", ("rows", TextRow, texts)), "policy": artifact(root, "policy")}
    asking = settings_of(TextTrialSettings, split=Split.TEST)
    given["rollouts"] = run(root, "try_sft", try_texts, asking, Lends(write), **given)
    read = {name: given[name] for name in ("rollouts", "texts")}
    given["judged"] = run(root, "judge_sft", judge_texts, judging, Resources(), **read)
    return given


def repaired(root: Path, given: dict[str, Artifact], lends: Resources, **more: Any) -> Artifact:
    settings = settings_of(
        RepairSettings, **{"turns": 3, "feedback": "validator", "texts": COMPACT, "judging": JUDGING, **more}
    )
    read = {name: given[name] for name in ("policy", "judged", "texts")}
    return run(root, "repair_sft", repair, settings, lends, **read)


def answers(texts: list[TextRow]) -> dict[str, str]:
    return {row.prompt: row.problem_pddl for row in texts}


def without_bracket(text: str) -> str:
    return text.rstrip()[:-1]


def test_judge_texts_tells_a_right_answer_from_one_that_cannot_be_read(tmp_path: Path, texts: list[TextRow]) -> None:
    first, *_ = texts

    def write(messages: Conversation, seed: int) -> str:
        right = answers(texts)[plain_text(messages)]
        return f"Here it is:\n{right}" if plain_text(messages) == first.prompt else without_bracket(right)

    rows = {row.problem_id: row for row in tried(tmp_path, texts, write)["judged"].rows(FormalisedRow)}
    assert list(rows) == ["p0", "p1"]  # the texts of the other splits are not asked
    right, broken = rows["p0"], rows["p1"]
    assert right.is_parsed and right.is_solved and not right.keeps_contract
    assert (right.outcome, right.atom_similarity, right.is_consistent, right.has_task_success) == (
        "identical",
        1.0,
        True,
        True,
    )
    assert right.plan == right.reference_plan and not right.feedback and right.fault is None
    assert broken.readability == Readability.UNPARSEABLE and broken.status is None and broken.outcome is None
    assert broken.fault == Fault.UNPARSEABLE and broken.feedback and not broken.plan
    assert broken.atom_similarity == 0.0 and not broken.has_task_success


def test_judge_texts_answer_with_another_goal_is_solved_and_unfaithful(tmp_path: Path, texts: list[TextRow]) -> None:
    def write(messages: Conversation, seed: int) -> str:
        right = answers(texts)[plain_text(messages)]
        return right[: right.index("(:goal")] + "(:goal (and (empty-ferry))))"

    for row in tried(tmp_path, texts, write)["judged"].rows(FormalisedRow):
        assert row.is_solved and row.outcome == "different" and row.fault == Fault.UNFAITHFUL
        assert not row.has_task_success and not row.feedback and row.differences


def test_repair_hands_back_what_failed_until_it_has_a_plan(tmp_path: Path, texts: list[TextRow]) -> None:
    right = answers(texts)

    def write(messages: Conversation, seed: int) -> str:
        prompt = plain_text(messages)
        if prompt in right:  # p0 is right at once, p1 can only be read once it is told what is wrong
            return right[prompt] if prompt == texts[0].prompt else without_bracket(right[prompt])
        [asked] = [text for text in right if prompt.startswith(text)]
        return right[asked]

    given, lends = tried(tmp_path, texts, write), Lends(write)
    made = repaired(tmp_path, given, lends)
    assert len(lends.stand_in.asked) == 1
    prompt = plain_text(lends.stand_in.asked[0])
    handed_back = re.sub(";.*", "", without_bracket(texts[1].problem_pddl))  # without the comments that repeat the text
    assert prompt.startswith(texts[1].prompt) and handed_back in prompt
    [row] = made.rows(FormalisedRow, VERDICTS)
    assert (row.problem_id, row.iteration, row.is_solved, row.outcome) == ("p1", 1, True, "identical")


def test_repair_with_coverage_hands_back_a_solvable_problem_that_leaves_out_an_object_of_the_text(
    tmp_path: Path, texts: list[TextRow]
) -> None:
    """A goal that is already reached has a plan, and says nothing of the cars that the text names."""
    right = answers(texts)
    empty = "(define (problem p) (:domain ferry) (:objects) (:init (empty-ferry)) (:goal (empty-ferry)))"

    def write(messages: Conversation, seed: int) -> str:
        prompt = plain_text(messages)
        return empty if prompt in right else next(right[text] for text in right if prompt.startswith(text))

    for checks, n_asked in (("planner", 0), ("coverage", 2)):
        judging = JUDGING.model_copy(update={"checks": checks})
        given, lends = tried(tmp_path / checks, texts, write, judging), Lends(write)
        made = repaired(tmp_path / checks, given, lends, judging=judging)
        assert len(lends.stand_in.asked) == n_asked
        assert [row.outcome for row in made.rows(FormalisedRow, VERDICTS)] == ["identical"] * n_asked
    assert all("which is no object of the problem" in plain_text(asked) for asked in lends.stand_in.asked)


def test_repair_never_tells_what_only_the_reference_knows(tmp_path: Path, texts: list[TextRow]) -> None:
    def write(messages: Conversation, seed: int) -> str:
        return "(define (problem p) (:domain ferry) (:objects) (:init) (:goal (and (empty-ferry))))"

    given = tried(tmp_path, texts, write)
    lends = Lends(write)
    repaired(tmp_path, given, lends, turns=1)
    own = {word for row in texts[:2] for word in row.problem_pddl.split() if word.startswith("(at")}
    for messages in lends.stand_in.asked:
        told = plain_text(messages).removeprefix(texts[0].prompt).removeprefix(texts[1].prompt)
        assert "empty-ferry" in told and not own & set(told.split())


def test_repair_without_feedback_asks_the_same_again_under_other_seeds(tmp_path: Path, texts: list[TextRow]) -> None:
    seeds = []

    def write(messages: Conversation, seed: int) -> str:
        seeds.append(seed)
        return "nothing"

    given, lends = tried(tmp_path, texts, write), Lends(write)
    seeds.clear()
    made = repaired(tmp_path, given, lends, feedback="none", turns=2, sampling=SamplingConfig(temperature=0.7))
    assert {plain_text(messages) for messages in lends.stand_in.asked} == {row.prompt for row in texts[:2]}
    assert len(seeds) == len(set(seeds)) == 4
    assert [row.iteration for row in made.rows(FormalisedRow, VERDICTS)] == [1, 1, 2, 2]


def test_repair_that_was_killed_after_a_turn_asks_only_the_next(tmp_path: Path, texts: list[TextRow]) -> None:
    def write(messages: Conversation, seed: int) -> str:
        return f"nothing after {plain_text(messages)[-40:]}"

    given = tried(tmp_path, texts, write)
    whole = repaired(tmp_path / "whole", given, Lends(write))

    class IsKilled(Exception):
        pass

    calls: list[int] = []
    settings = settings_of(RepairSettings, turns=3, feedback="validator", texts=COMPACT, judging=JUDGING)
    stage = Stage(name="repair_sft", run=repair, settings=settings, seed=5)
    read = {name: given[name] for name in ("policy", "judged", "texts")}

    class EndsAfterOneTurn(Lends):
        def generator(self, policy: Any, engine: Any) -> Generator:
            calls.append(1)
            if len(calls) > 1:
                raise IsKilled
            return super().generator(policy, engine)

    with pytest.raises(IsKilled):
        repair(
            StageContext(
                stage, read, ArtifactWriter(tmp_path / "killed", "repair_sft", stage.key), EndsAfterOneTurn(write)
            )
        )
    lends = Lends(write)
    again = repaired(tmp_path / "killed", given, lends)
    assert len(lends.stand_in.asked) == 4  # two texts, turns 2 and 3
    assert again.rows(FormalisedRow, VERDICTS) == whole.rows(FormalisedRow, VERDICTS)
    assert again.rows(RolloutRow) == whole.rows(RolloutRow)


def test_write_text_examples_say_each_problem_in_several_ways_and_mend_what_was_told_of(
    tmp_path: Path, texts: list[TextRow]
) -> None:
    lost = PerturbedRow("p3-lost", "p3", "bracket_lost", Fault.UNPARSEABLE, "(define (problem", "lost a bracket")
    silent = replace(lost, perturbed_id="p3-goal", fault=Fault.UNFAITHFUL, feedback="")
    given = {
        "texts": artifact(tmp_path, "texts", ("rows", TextRow, texts)),
        "perturbed": artifact(tmp_path, "perturbed", ("rows", PerturbedRow, [lost, silent])),
    }
    settings = TextExampleSettings(texts=COMPACT, object_names=NAMES, copies=3)
    made = run(tmp_path, "write_examples", write_text_examples, settings, Lends(lambda *_: None), **given)
    rows = made.rows(ExampleRow, "texts")
    assert len({row.prompt for row in rows}) == len({row.response for row in rows}) == 3
    assert {(row.problem_id, row.kind) for row in rows} == {("p3", ExampleKind.FORMALISE)}  # D1's only
    [mended] = made.rows(ExampleRow, "repairs")
    assert mended.kind == ExampleKind.REPAIR and mended.response == texts[3].problem_pddl
    assert mended.prompt.startswith(texts[3].prompt) and "lost a bracket" in mended.prompt


def test_write_pairs_of_own_answers_takes_each_once_and_never_the_right_one(
    tmp_path: Path, texts: list[TextRow]
) -> None:
    text = texts[2]

    def judged(name: str, fault: Fault | None, pddl: str) -> FormalisedRow:
        return FormalisedRow(name, text.problem_id, 0, "v", "parsed", True, pddl, (), "", "solved", (), (), 1.0, False,
                             "different", "", (), False, fault)  # fmt: skip

    rows = [
        judged("p2-0", Fault.UNFAITHFUL, "(wrong)"),
        judged("p2-1", Fault.UNFAITHFUL, "(wrong)"),
        judged("p2-2", Fault.UNSOLVABLE, text.problem_pddl),
        judged("p2-3", None, "(perhaps)"),
        judged("p2-4", Fault.UNPARSEABLE, "(broken"),
    ]
    given = {"judged": artifact(tmp_path, "judged", ("rows", FormalisedRow, rows))}
    faulty = run(tmp_path, "collect_failures", collect_failures, None, Resources(), **given)
    settings = PairSettings(negatives="sampled", per_problem=9, held_out_share=0.0)
    given = {"texts": artifact(tmp_path, "texts", ("rows", TextRow, texts)), "perturbed": faulty}
    pairs = run(tmp_path, "write_pairs", write_pairs, settings, Resources(), **given).rows(PairRow)
    assert {(row.chosen, row.rejected) for row in pairs} == {(text.problem_pddl, x) for x in ("(wrong)\n", "(broken\n")}


def test_write_pairs_keeps_all_pairs_of_a_problem_on_one_side(tmp_path: Path, texts: list[TextRow]) -> None:
    copies = [replace(texts[2], problem_id=f"q{number}") for number in range(10)]
    faulty = [
        PerturbedRow(f"{row.problem_id}-{k}", row.problem_id, "x", Fault.UNSOLVABLE, f"({k})", "")
        for row in copies
        for k in range(2)
    ]
    given = {
        "texts": artifact(tmp_path, "texts", ("rows", TextRow, copies)),
        "perturbed": artifact(tmp_path, "perturbed", ("rows", PerturbedRow, faulty)),
    }
    settings = PairSettings(negatives="paper", per_problem=2, held_out_share=0.3)
    made = run(tmp_path, "write_pairs", write_pairs, settings, Resources(), **given)
    taught, held_out = ({row.problem_id for row in made.rows(PairRow, table)} for table in ("rows", HELD_OUT))
    assert len(held_out) == 3 and taught == {row.problem_id for row in copies} - held_out


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("model.tokenizer=words", "take bpe"),
        ("dpo=null", "sft_longer has as many tokens as dpo"),
        ("repair.turns=-1", "greater than or equal to 0"),
        ("repair.temperature=3", "less than or equal to 2"),
        ("evaluation.temperature=3", "less than or equal to 2"),
        ("dpo.beta=0", "greater than 0"),
        ("problems.domains=[]", "exactly one of"),
        ("texts.reworded=[ferry L1]", r"names ferry L1; expected levels that are .*never trained on \(ferry larger, "),
        ("texts.reworded=[ferry L9]", "names ferry L9"),
    ],
)
def test_settings_that_do_not_fit_are_refused(override: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        PIPELINE.settings("smoke", overrides=[override])


def test_paper_preset_tests_a_thousand_problems_evenly_over_thirteen_domains_and_four_levels() -> None:
    levels = PIPELINE.settings("paper").problems.domains
    assert len({level.domain for level in levels}) == 13 and len(levels) == 52
    assert sum(level.test for level in levels) == 1000 and {level.test for level in levels} == {19, 20}

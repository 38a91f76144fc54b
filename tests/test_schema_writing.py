"""Schemas one a completion: their words, the loop that mends them, and the invented domains that they are learnt of."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from stand_in_generator import StandInGenerator

from pipelines.self_criteach import PIPELINE
from pipelines.stages import domain_writing, phase1_data
from pipelines.stages.domain_writing import (
    DEMONSTRATIONS,
    CheckingSettings,
    GatheringSettings,
    ReadingSettings,
    WriteSchemasSettings,
    written_domain,
)
from pipelines.stages.phase1_data import DrawingSettings
from pipelines.stages.priming import SCHEMAS, SchemaPrimerSettings, write_schema_primer
from plansmith.config.dataset import SymbolPoolConfig
from plansmith.config.domain_writing import DemonstrationsConfig, WritingConfig
from plansmith.config.generation import SamplingConfig
from plansmith.config.invention import InventionGrid
from plansmith.config.planner import PlannerConfig
from plansmith.config.priming import MAX_ATTEMPTS, PrimerConfig, PrimerGrid
from plansmith.config.problems import DomainLevelConfig, ProblemsConfig
from plansmith.config.self_criteach import SelfCriteachConfig
from plansmith.config.training import EngineNumerics
from plansmith.data.artifacts import Artifact
from plansmith.data.demonstration_files import read_demonstrations
from plansmith.data.rows import ExampleKind, ExampleRow, MetricRow, ProblemRow, WrittenDomainRow
from plansmith.errors import ConfigError
from plansmith.generation import Conversation, plain_text
from plansmith.judging.schema_examples import Recorded, SchemaLessons, damage, is_same, record
from plansmith.judging.schema_writing import SchemaWriting, Shown
from plansmith.pddl.domain_forms import domain_form
from plansmith.pddl.model import Atom, Conjunction, Domain, Literal, PlanStep, Problem
from plansmith.pddl.printer import print_domain
from plansmith.problems.action_learning import learn_action
from plansmith.problems.demonstrations import Attempt, Demonstrations, Skill
from plansmith.problems.invention.drawing import draw_domain
from plansmith.problems.library import load_domain
from plansmith.problems.simulator import Recording, demonstrate, demonstrations_of
from plansmith.resources import Resources
from plansmith.stages import Stage, row_rng, run_stages
from plansmith.text.anonymisation import Anonymisation, anonymise
from plansmith.text.schema_words import (
    AFTERWARDS,
    ALLOWS,
    ATTEMPTS,
    FORBIDS,
    Complaint,
    SchemaWords,
    hidden_names,
    telling_attempts,
)

BLOCKS = load_domain("blocks-classic")
SIZES: Any = {"blocks": (3, 4), "tables": (1, 1), "robots": (1, 1), "moves": (1, 4)}
POOL = SymbolPoolConfig()
SHOWN = Shown(4, 4)

# --- words, by hand


def atom(text: str) -> Atom:
    name, *arguments = text.split()
    return Atom(name, tuple(arguments))


def attempt(before: str, after: str | None, *arguments: str) -> Attempt:
    states = [frozenset(map(atom, text.split(", "))) for text in (before, after) if text]
    return Attempt(states[0], PlanStep("take", arguments), states[1] if after else None)


TAKE = Skill("take", ("b", "h"))
FIRST = attempt("on x, free h, red x", "has x h, red x", "x", "h")
SECOND = attempt("on y, free h, on x, loud h", "has y h, on x, loud h", "y", "h")
SAME = attempt("on x, free h, red x, on y", "has x h, red x, on y", "x", "h")
NAMES = Anonymisation(
    {"take": "a_5"}, {"on": "p_1", "free": "p_2", "red": "p_3", "has": "p_4", "loud": "p_6"}, {}, {}, {}
)
WORDS = SchemaWords(TAKE, {"on": 1, "free": 1, "red": 1, "has": 2, "loud": 1}, NAMES)
ANSWER = "check: p_1 ?x0 second: so p_2 ?x1 second: so p_3 ?x0 second: lost add: p_4 ?x0 ?x1 delete: p_1 ?x0 p_2 ?x1"


def test_question_tells_what_was_seen_of_the_arguments_under_symbols() -> None:
    assert WORDS.question([FIRST, SECOND]) == (
        "skill: a_5 ?x0 ?x1"
        " first: p_1 ?x0 p_2 ?x1 p_3 ?x0 add: p_4 ?x0 ?x1 delete: p_1 ?x0 p_2 ?x1"
        " second: p_1 ?x0 p_2 ?x1 p_6 ?x1 add: p_4 ?x0 ?x1 delete: p_1 ?x0 p_2 ?x1"
        " write:"
    )


def test_answer_tells_what_of_the_first_attempt_was_so_in_all_and_is_read_as_the_schema() -> None:
    schema = learn_action(TAKE, [FIRST, SECOND])
    assert WORDS.answer([FIRST, SECOND], schema) == ANSWER
    read = WORDS.read(ANSWER)
    assert read is not None and is_same(read, schema) and read.parameters == schema.parameters
    assert [typed.name for typed in schema.parameters] == ["?b", "?h"]
    third = WORDS.answer([FIRST, SECOND, SAME], learn_action(TAKE, [FIRST, SECOND]))
    assert "p_2 ?x1 second: so third: so p_3 ?x0 second: lost add:" in third


def test_what_follows_a_whole_schema_is_read_past() -> None:
    assert WORDS.read(f"{ANSWER} add: p_4 ?x0 ?x1 delete: p_3 ?x0 add:") == WORDS.read(ANSWER) is not None


def test_a_primed_writer_is_shown_no_more_attempts_than_there_are_words_for() -> None:
    assert len(ATTEMPTS) == MAX_ATTEMPTS
    config = PIPELINE.settings("primed").model_dump()
    config["domain"]["attempts_shown"] = MAX_ATTEMPTS + 1
    with pytest.raises(ValidationError, match="attempts_shown=9: with prime a question tells of 8 at most"):
        SelfCriteachConfig.model_validate(config)


def test_repair_question_tells_each_different_fault_once() -> None:
    schema = learn_action(TAKE, [FIRST])
    red = Complaint(FORBIDS, ("y", "h"), (Literal(atom("red y")),))
    also = Complaint(FORBIDS, ("x", "h"), (Literal(atom("red x")),))
    allowed = Complaint(ALLOWS, ("x", "h"), (Literal(atom("on x")), Literal(atom("on y"))))
    after = Complaint(AFTERWARDS, ("x", "h"), (Literal(atom("red x"), is_positive=False),))
    said = WORDS.repair_question([SECOND], schema, [red, also, allowed, after], most=2)
    assert said == (
        f"{WORDS.question([SECOND]).removesuffix(' write:')} schema: check: p_1 ?x0 p_2 ?x1 p_3 ?x0 add: p_4 ?x0 ?x1"
        " delete: p_1 ?x0 p_2 ?x1 forbids: p_3 ?x0 allows: p_1 ?x0 write:"
    )
    assert " afterwards: not: p_3 ?x0 write:" in WORDS.repair_question([SECOND], schema, [after], most=2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "check: p_1 ?x0 add: p_4 ?x0 ?x1",
        "add: p_4 ?x0 ?x1 check: p_1 ?x0 delete:",
        "check: p_1 add: delete:",
        "check: p_1 ?x2 add: delete:",
        "check: p_9 ?x0 add: delete:",
        "check: ?x0 add: delete:",
    ],
    ids=["empty", "no delete", "order", "arity", "parameter", "predicate", "no predicate"],
)
def test_answer_without_a_whole_schema_is_none(text: str) -> None:
    assert WORDS.read(text) is None


def test_attempts_that_tell_nothing_more_are_not_shown() -> None:
    refused = attempt("on x", None, "x", "h")
    assert telling_attempts([SAME, refused, FIRST, SECOND], TAKE, most=4) == [SAME, SECOND]
    assert telling_attempts([SAME, FIRST, SECOND], TAKE, most=1) == [SAME]


# --- the loop


def recorded_blocks(n: int = 10) -> Demonstrations:
    walks = []
    for seed in range(n):
        problem = BLOCKS.sample("any", random.Random(seed), sizes=SIZES)
        walks.append(demonstrate(BLOCKS.domain, problem, Recording(10, 6), random.Random(seed)))
    return demonstrations_of(BLOCKS.domain, "", tuple(walks))


def test_questions_hold_no_reference_schema_and_no_name_of_the_domain() -> None:
    seen = recorded_blocks()
    loop = SchemaWriting(seen, hidden_names(seen, random.Random(0), POOL), SHOWN)
    asked = {name: plain_text(conversation) for name, conversation in loop.questions({}).items()}
    assert set(asked) == {action.name for action in BLOCKS.domain.actions}
    names = {schema.name for schema in (*BLOCKS.domain.predicates, *BLOCKS.domain.actions)}
    for skill in loop.skills:
        words, question = SchemaWords.of(skill, seen, loop.names), asked[skill.name]
        assert not names & set(question.split()) and "check:" not in question
        shown = telling_attempts((one for _, one in seen.attempts), skill, most=SHOWN.attempts)
        for one in shown:  # what was seen, and nothing else
            question = question.replace(f" {words.question([one]).split(' ', 5)[-1].removesuffix(' write:')}", "", 1)
        schema = BLOCKS.domain.action(skill.name)
        assert schema is not None and words.write(schema) not in question


def solved_by_hand(question: str, *, forgets: bool = False) -> str:
    """Return the schema that the attempts of a question leave, or that without its last precondition."""
    shown = re.split(f" (?:{'|'.join(ATTEMPTS)}) ", question.split(" schema: ")[0].removesuffix(" write:"))[1:]
    parts = [[_atoms(text) for text in part.replace("delete:", "add:").split("add:")] for part in shown]
    needed = [one for one in parts[0][0] if all(one in part[0] for part in parts)]
    sections = (needed[: len(needed) - forgets], sorted({one for part in parts for one in part[1]}),
                sorted({one for part in parts for one in part[2]}))  # fmt: skip
    return "check: {} add: {} delete: {}".format(*(" ".join(section) for section in sections))


def _atoms(text: str) -> list[str]:
    found: list[str] = []
    for word in text.split():
        found = [*found[:-1], f"{found[-1]} {word}"] if word.startswith("?") else [*found, word]
    return found


class Lending(Resources):
    """Lends a model that forgets a precondition of every schema, and mends it when it is told."""

    def __init__(self) -> None:
        self.model = StandInGenerator(self._write, window=100_000)

    def generator(self, policy: Any, engine: Any) -> StandInGenerator:
        return self.model

    def _write(self, conversation: Conversation, seed: int) -> str:
        question = plain_text(conversation)
        return solved_by_hand(question, forgets="schema:" not in question)


PROBLEMS = ProblemsConfig(
    domains=(
        DomainLevelConfig(domain="blocks-classic", level="small", sizes=SIZES, phase1=12, phase2=6, test=6,
                          n_draws=200),
    ),
    phase2_share=0.3,
)  # fmt: skip
PLANNER = PlannerConfig(search="first", time_limit_s=5, kill_after_s=10)


def drawn() -> Stage[Any]:
    drawing = DrawingSettings(problems=PROBLEMS, pddl="", is_word_level=False)
    return Stage(name="sample_problems", run=phase1_data.sample_problems, settings=drawing)


def writing_stages() -> list[Stage[Any]]:
    problems = drawn()
    gathering = GatheringSettings(
        domain="blocks-classic", demonstrations=DemonstrationsConfig(trajectories=8), attempts_shown=4
    )
    recorded = Stage(
        name="gather", run=domain_writing.gather_demonstrations, settings=gathering, inputs={"problems": problems}
    )
    given: dict[str, Stage[Any]] = {"problems": problems, "demonstrations": recorded}
    found, before = [problems, recorded], dict[str, Stage[Any]]()
    for turn in range(3):
        settings = WriteSchemasSettings(
            sampling=SamplingConfig(n=2, max_new_tokens=400), engine=EngineNumerics(), prompting="", iteration=turn,
            checking=CheckingSettings(domain="blocks-classic", planner=PLANNER, scenes=2),
            writing=WritingConfig(candidates=2, attempts_shown=4), symbols=POOL,
        )  # fmt: skip
        run = domain_writing.write_schemas
        found.append(
            Stage(name=f"write_{turn}", run=run, settings=settings, inputs={**given, **before}, iteration=turn)
        )
        before = {"before": found[-1]}
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Artifact], Lending]:
    resources = Lending()
    return run_stages(writing_stages(), root=tmp_path_factory.mktemp("made"), resources=resources), resources


def best(artifact: Artifact) -> WrittenDomainRow:
    return next(row for row in artifact.rows(WrittenDomainRow) if row.is_best)


def test_faults_of_an_action_go_back_to_it_alone_and_what_has_none_is_not_asked_again(
    made: tuple[dict[str, Artifact], Lending],
) -> None:
    artifacts, resources = made
    asked = (plain_text(conversation) for conversation in resources.model.asked)
    questions = list(dict.fromkeys(asked))  # each for every candidate
    first, again = questions[:4], questions[4:]
    assert all("schema:" not in question for question in first)
    concerned = {
        fault.split("(")[1].split()[0] for fault in best(artifacts["write_0"]).faults if "refused, in" in fault
    }
    assert 1 <= len(again) <= 4 and len(again) >= len(concerned) >= 1
    assert all(question.count(" schema: ") == 1 and " allows: " in question for question in again)


def test_domain_of_schemas_is_mended_and_explains_what_was_seen(made: tuple[dict[str, Artifact], Lending]) -> None:
    artifacts, _ = made
    before, after = best(artifacts["write_0"]), best(artifacts["write_1"])
    assert before.faults and not after.faults
    assert (after.transitions, after.refusals, after.true_plans) == (1.0, 1.0, 1.0)
    assert best(artifacts["write_2"]) == after, "nothing is asked of a domain without a fault"
    assert {action.name for action in written_domain(artifacts["write_1"]).actions} == {
        action.name for action in BLOCKS.domain.actions
    }


def test_every_literal_of_a_domain_of_schemas_stands_in_one_completion_of_its_skill(
    made: tuple[dict[str, Artifact], Lending],
) -> None:
    artifacts, _ = made
    demonstrations = read_demonstrations(artifacts["gather"].path(DEMONSTRATIONS))
    skills = {skill.name: skill for skill in demonstrations.skills}
    rows = artifacts["write_1"].rows(WrittenDomainRow)
    assert {row.turn for row in rows} == {0, 1}
    for action in written_domain(artifacts["write_1"]).actions:
        found = []
        for row in rows:
            names = hidden_names(demonstrations, row_rng(0, f"write_{row.turn}", "names", row.turn), POOL)
            mine = SchemaWords.of(skills[action.name], demonstrations, names).write(action)
            found += [all(map(set.issubset, _sections(mine), _sections(line))) for line in row.completion.splitlines()]
        assert any(found), action.name


def _sections(text: str) -> list[set[str]]:
    return [set(_atoms(part)) for part in re.split("check:|add:|delete:", text)[1:]]


# --- what it is learnt of

GRID = PrimerGrid(actions=((2, 3),), predicates=((3, 6),), parameters=((2, 3),), types=((1, 2),))


def recorded_domain(seed: int) -> Recorded:
    rng = random.Random(seed)
    invention = draw_domain("invented", InventionGrid(**GRID.model_dump()), rng, adl_share=0.0)
    assert invention is not None
    found = record(invention, Recording(10, 5), rng, n_walks=2)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", [6, 10])
def test_examples_read_back_to_the_domain_that_made_them(seed: int) -> None:
    recorded, lessons = recorded_domain(seed), SchemaLessons(SHOWN, POOL, renamings=1, repairs=2)
    rows = list(lessons.examples(recorded, random.Random(0)))
    names = hidden_names(recorded.demonstrations, random.Random(0), POOL)
    assert {row.kind for row in rows} == {ExampleKind.WRITE_DOMAIN, ExampleKind.REPAIR}
    asked = {row.example_id for row in rows if row.kind == ExampleKind.WRITE_DOMAIN}
    assert len(asked) == len(recorded.domain.actions), "all of these domains' schemas are determined"
    for row in rows:
        assert row.problem_id == domain_form(recorded.domain)
        skill = next(one for one in recorded.demonstrations.skills if f"-{one.name}-" in row.example_id)
        read = SchemaWords.of(skill, recorded.demonstrations, names).read(row.response)
        true = recorded.domain.action(skill.name)
        assert read is not None and true is not None and is_same(read, true)
        if row.kind == ExampleKind.REPAIR:
            markers = "|".join((FORBIDS, ALLOWS, AFTERWARDS))
            damaged, *faults = re.split(f" (?:{markers})", row.prompt.split(" schema: ")[1])
            assert faults and damaged != row.response


def test_damage_changes_one_literal_or_two() -> None:
    schema = BLOCKS.domain.action("stack")
    assert schema is not None
    seen = recorded_blocks(3)
    shown = telling_attempts((one for _, one in seen.attempts), Skill("stack", ("b1", "b2", "r")), most=4)
    damaged = [damage(schema, shown, random.Random(seed)) for seed in range(20)]
    assert sum(is_same(one, schema) for one in damaged) < 10


PRIMER = PrimerConfig(domains=4, walks=2, renamings=1, repairs=1, grid=GRID)


def problems_of(context: Any) -> None:
    """Write one problem of the domain that stands in the settings."""
    row = ProblemRow("p", "f", "d", "l", "phase1", 1, context.settings.given, "", "here")
    context.output.write_rows([row], ProblemRow)


def primed(domain: Domain, folder: Path) -> Artifact:
    settings = ReadingSettings(domain="d", planner=PLANNER, scenes=1, given=print_domain(domain))
    problems = Stage(name="problems", run=problems_of, settings=settings)
    writing = SchemaPrimerSettings(primer=PRIMER, shown=(4, 4), recording=(10, 5), count=4)
    stage = Stage(name="write_schema_primer", run=write_schema_primer, settings=writing, inputs={"problems": problems})
    return run_stages([problems, stage], root=folder, resources=Resources())[stage.name]


def drawn_as_in_the_stage(number: int) -> Recorded:
    """Return the domain of a number as `write_schema_primer` draws it with seed 0."""
    rng = row_rng(0, "write_schema_primer", "domain", number)
    invention = draw_domain(f"primer-{number}", InventionGrid(**GRID.model_dump()), rng, adl_share=0.0)
    found = None if invention is None else record(invention, Recording(10, 5), rng, n_walks=2)
    return found or Recorded(BLOCKS.domain, recorded_blocks(1))


def test_no_example_is_of_a_domain_of_the_run_under_other_names(tmp_path: Path) -> None:
    before = primed(BLOCKS.domain, tmp_path / "blocks")
    forms = list(dict.fromkeys(row.problem_id for row in before.rows(ExampleRow, SCHEMAS)))
    assert len(forms) > 1 and domain_form(BLOCKS.domain) not in forms
    recorded = next(one for one in map(drawn_as_in_the_stage, range(4)) if domain_form(one.domain) == forms[0])
    problem = Problem("", recorded.domain.name, (), (), Conjunction(()))
    other = anonymise(recorded.domain, problem, (), random.Random(5), POOL).domain
    after = primed(other, tmp_path / "other")
    assert [form for form in forms if form not in {row.problem_id for row in after.rows(ExampleRow, SCHEMAS)}] == forms[
        :1
    ]
    counts = {row.name: row.value for row in after.rows(MetricRow, "metrics")}
    assert counts["primer/domains left out"] >= 1


@pytest.mark.parametrize(
    ("preset", "overrides", "message"),
    [
        ("primed", ["prime=null"], "knows no PDDL"),
        ("primed", ["model.tokenizer=bpe"], "tokenizer=words"),
    ],
    ids=["unprimed", "bpe"],
)
def test_settings_of_priming_that_do_not_go_together_are_refused(
    preset: str, overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        PIPELINE.settings(preset, overrides=overrides)


def test_primed_run_learns_before_it_writes_one_schema_a_completion() -> None:
    stages = PIPELINE.stages(PIPELINE.settings("primed"))
    names = [stage.name for stage in stages]
    order = ["write_schema_primer", "initial_policy", "prime_base", "hold_out_schemas", "try_schema_primer",
             "write_domain_blocks-classic", "repair_domain_blocks-classic_5", "prune_domain_blocks-classic",
             "try_base"]  # fmt: skip
    assert [name for name in names if name in order] == order
    writing = next(stage for stage in stages if stage.name == "write_domain_blocks-classic")
    assert writing.inputs["policy"].name == "prime_base" and writing.run is domain_writing.write_schemas

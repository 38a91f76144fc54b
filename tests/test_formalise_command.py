"""`plansmith formalise`: one text, a scripted server or a folder, and what is written, said and refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from conftest import BLOCKS, BLOCKS_TEXT, NAMES
from scripted_server import Request, Server, completion, fail, serving
from stand_in_generator import StandInGenerator

from pipelines.commands import formalise, nl2plan
from pipelines.nl2plan import PIPELINE as NL2PLAN
from pipelines.trials.folder_policy import FolderPolicy
from plansmith.config.formalisation import FormalisationConfig
from plansmith.config.generation import SamplingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.training import ModelConfig
from plansmith.errors import BadInputError, ConfigError
from plansmith.generation import Conversation, plain_text
from plansmith.judging.formalisation import FormalisationJudge
from plansmith.judging.repair import RepairLoop, Turn, best_answer
from plansmith.learning.model_folder import is_from_nothing, is_word_level
from plansmith.learning.models import bpe_tokenizer, load_tokenizer, make_model
from plansmith.learning.tokenizer import word_tokenizer
from plansmith.pddl.parser import parse_problem
from plansmith.planners import FastDownward, PlannerStatus
from plansmith.planners.batch import proving
from plansmith.text.coverage import undeclared_names, unnamed_objects
from plansmith.text.statements import numbered_text

Capture = pytest.CaptureFixture[str]
TEXT = "There are two blocks, Red and blue. Both stand on the table, nothing on them, and the hand is empty.\n" \
    "In the end red stands on blue.\n"  # fmt: skip
TABLE = "(ontable red) (ontable blue) (clear red) (clear blue)"


def written(init: str = f"{TABLE} (handempty)", goal: str = "(on red blue)", objects: str = "red blue") -> str:
    return f"(define (problem p) (:domain blocksworld)\n (:objects {objects})\n (:init {init})\n (:goal (and {goal})))"


RIGHT = written()
PLAN = "(pick-up red)\n(stack red blue)\n"
BROKEN, UNSOLVABLE = RIGHT[:-1], written(init=TABLE)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one command left."""

    code: int
    out: str
    err: str
    problem: str | None
    plan: str | None


Run = Callable[..., Outcome]


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a server that answers rightly."""
    with serving(lambda _: (200, completion(RIGHT))) as scripted:
        yield scripted


@pytest.fixture
def run(server: Server, tmp_path: Path, capsys: Capture) -> Run:
    """Return a function that gives the command about the text above; words are further options."""
    (tmp_path / "domain.pddl").write_text(BLOCKS_TEXT, encoding="utf-8")
    (tmp_path / "task.txt").write_text(TEXT, encoding="utf-8")
    out, plan = tmp_path / "problem.pddl", tmp_path / "plan.txt"

    def command(*words: str, is_out: bool = True) -> Outcome:
        given = [str(tmp_path / "task.txt"), "--policy", server.url, "--domain", str(tmp_path / "domain.pddl")]
        given += ["--plan", str(plan), "--planner-time-s", "5", *(["--out", str(out)] if is_out else [])]
        code = formalise.main([*given, *words])
        shown, files = capsys.readouterr(), (out, plan)
        return Outcome(
            code, shown.out, shown.err, *(path.read_text("utf-8") if path.exists() else None for path in files)
        )

    return command


def answering(*answers: str) -> Callable[[Request], tuple[int, Any]]:
    """Return what gives these answers in turn, the last one again and again."""
    return lambda request: (200, completion(answers[min(request.number, len(answers) - 1)]))


def test_right_answer_is_written_with_its_plan_after_one_request(server: Server, run: Run) -> None:
    found = run()
    assert (found.code, found.problem, found.plan) == (0, f"{RIGHT}\n", PLAN)
    assert len(server.requests) == 1
    [prompt] = [request.prompt for request in server.requests]
    assert TEXT.strip() in prompt and "Actions: " in prompt and ":precondition" not in prompt  # full, summary
    lines = found.out.splitlines()
    assert lines[0].endswith("(prompts: full, of the domain: summary)")
    assert "answer: can be read, a plan of 2 steps" in lines
    assert "checked: it is a problem of the domain blocksworld (2 objects, 5 initial facts)" in lines
    assert "checked: a plan of 2 steps, accepted by the validator" in lines
    assert "not checked: whether it means what the text says; nobody can without a reference, so read it" in lines
    assert lines[-1] == "the text names every object"


def test_answer_in_a_fence_is_taken_out_and_goes_to_stdout_alone(server: Server, run: Run) -> None:
    server.reply = answering(f"Here it is:\n```pddl\n{RIGHT}\n```\nDone.")
    found = run(is_out=False)
    assert (found.code, found.out, found.problem, found.plan) == (0, f"{RIGHT}\n", None, PLAN)
    assert "answer: can be read" in found.err


def test_answer_that_names_what_the_text_does_not_is_told(server: Server, run: Run) -> None:
    server.reply = answering(written(f"{TABLE} (handempty) (ontable dark-green)", objects="dark-green red blue"))
    found = run()
    assert found.code == 0
    assert found.out.splitlines()[-1] == "objects that the text does not name: dark-green"


def test_failed_answers_are_handed_back_with_what_is_wrong_until_one_has_a_plan(server: Server, run: Run) -> None:
    server.reply = answering(BROKEN, UNSOLVABLE, RIGHT)
    found = run("--detail", "pddl", "--seed", "3")
    assert (found.code, found.problem, found.plan) == (0, f"{RIGHT}\n", PLAN)
    first, second, third = server.requests
    assert ":precondition" in first.prompt
    assert second.prompt.startswith(first.prompt) and BROKEN in second.prompt
    assert "error: missing ')'" in second.prompt
    assert third.prompt.startswith(first.prompt) and UNSOLVABLE in third.prompt and BROKEN not in third.prompt
    assert "The planner says: unsolvable." in third.prompt and "(handempty)" in third.prompt.partition("Feedback")[2]
    assert [request.body["seed"] for request in server.requests] == [3, 4, 5]
    lines = found.out.splitlines()
    heads = ["answer: cannot be read", "repair 1: can be read, no plan", "repair 2: can be read, a plan of 2 steps"]
    assert [line for line in lines if line in heads] == heads
    assert "  The planner says: unsolvable." in lines


@pytest.mark.parametrize(
    ("answers", "expected", "told"),
    [
        ([BROKEN, UNSOLVABLE, BROKEN], UNSOLVABLE, "no plan after 2 repairs; the last problem that can be read"),
        (["no", BROKEN, "never"], "never", "not a problem of the domain after 2 repairs"),
    ],
    ids=["the last that can be read", "the last"],
)  # fmt: skip
def test_turns_spent_without_a_plan_end_with_code_1_and_the_best_answer(
    server: Server, run: Run, answers: list[str], expected: str, told: str
) -> None:
    server.reply = answering(*answers)
    found = run("--repair-turns", "2")
    assert (found.code, found.problem, found.plan) == (1, f"{expected}\n", None)
    assert len(server.requests) == 3
    assert told in found.out


@pytest.mark.parametrize(
    ("reason", "said"),
    [("length", "cut off after 77 tokens: --max-new-tokens"), ("repetition", "cut off: it went in circles")],
)
def test_no_repair_turns_ask_once_and_an_answer_cut_off_says_so(
    server: Server, run: Run, reason: str, said: str
) -> None:
    cut = completion(BROKEN)
    cut["choices"][0]["finish_reason"] = reason
    server.reply = lambda _: (200, cut)
    found = run("--repair-turns", "0", "--max-new-tokens", "77", "--rendering", "compact", "--detail", "name")
    assert (found.code, len(server.requests)) == (1, 1)
    assert server.requests[0].prompt == f"domain: blocksworld\n{numbered_text(TEXT, 'pddl')}"
    assert f"answer: cannot be read ({said})" in found.out


def test_endpoint_that_fails_ends_with_code_1_and_writes_nothing(server: Server, run: Run) -> None:
    server.reply = fail
    found = run("--max-retries", "0")
    assert (found.code, found.problem) == (1, None)
    assert "a request failed" in found.err and "out of memory" in found.err


NO_ROOM = {
    "error": {"message": "This model's maximum context length is 64 tokens. Your messages have 90.", "code": 400}
}


def test_text_that_fills_the_servers_window_ends_with_code_2(server: Server, run: Run, tmp_path: Path) -> None:
    server.reply = lambda _: (400, NO_ROOM)
    found = run()
    assert (found.code, found.problem, len(server.requests)) == (2, None, 1)
    assert f"error: {tmp_path / 'task.txt'}: a text too long for the model" in found.err


def test_repair_that_fills_the_window_is_an_answer_without_a_problem(server: Server, run: Run) -> None:
    server.reply = lambda request: (200, completion(BROKEN)) if request.number == 0 else (400, NO_ROOM)
    found = run("--repair-turns", "1")
    assert (found.code, found.problem) == (1, "\n")
    assert "repair 1: none: text, last answer and feedback fill the model's window" in found.out


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("task.txt", None, "cannot be read"),
        ("task.txt", " \n\t\n", "an empty text"),
        ("domain.pddl", None, "cannot be read"),
        ("domain.pddl", BLOCKS_TEXT.replace("(clear ?", "(free ?", 1), "domain.pddl:"),
    ],
    ids=["no text", "empty text", "no domain", "a mistake in the domain"],
)
def test_bad_files_end_with_code_2_and_ask_nobody(
    server: Server, run: Run, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content, encoding="utf-8")
    found = run()
    assert (found.code, found.out, found.problem, server.requests) == (2, "", None, [])
    assert found.err.startswith(f"error: {tmp_path / name}") and message in found.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--repair-turns", "-1"], "--repair-turns is too small"),
        (["--temperature", "3"], "less than or equal to 2"),
        (["--repair-temperature", "3"], "the command line, --repair-temperature: temperature: "),
        (["--planner-search", "fastest"], "unknown search 'fastest'"),
        (["--out", "no/such/problem.pddl"], "no folder for the problem"),
        (["--plan", "/"], "no name of a file for the plan"),
        (["--policy", "no-such-folder"], "no such model folder"),
    ],
    ids=["turns", "temperature", "repair temperature", "search", "out", "plan", "policy"],
)
def test_bad_options_end_with_code_2_and_ask_nobody(server: Server, run: Run, words: list[str], message: str) -> None:
    found = run(*words)
    assert (found.code, found.problem, server.requests) == (2, None, [])
    assert message in found.err


# --- a model folder


@pytest.fixture(scope="module")
def from_nothing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "from-nothing"
    shape = ModelConfig(hidden_size=16, n_layers=1, n_heads=2, n_kv_heads=1, intermediate_size=32)
    make_model(folder, bpe_tokenizer([TEXT, RIGHT], 300), shape, max_position_embeddings=32, seed=0)
    return folder


def test_text_that_fills_the_folders_window_ends_with_code_2_before_an_engine_is_started(
    run: Run, from_nothing: Path, tmp_path: Path
) -> None:
    found = run("--policy", str(from_nothing))
    assert found.code == 2
    assert f"error: {tmp_path / 'task.txt'}: a problem too long for the model" in found.err
    assert "fewer than the 32 that the model reads" in found.err


def test_prompts_for_a_model_from_nothing_are_compact_and_others_as_asked_for(from_nothing: Path) -> None:
    tokenizer = load_tokenizer(str(from_nothing))
    assert is_from_nothing(tokenizer) and not is_word_level(tokenizer)
    tokenizer.chat_template = "{{ messages }}"
    assert not is_from_nothing(tokenizer)
    policy = FolderPolicy.read(from_nothing)
    for words, expected in (([], ("compact", "name")), (["--rendering", "full"], ("full", "name"))):
        arguments = formalise._parser().parse_args(["x", "--policy", "y", "--domain", "z", *words])
        texts = formalise.prompts_of(arguments, policy)
        assert (texts.rendering, texts.detail) == expected


def test_word_level_folder_ends_with_code_2(run: Run, tmp_path: Path) -> None:
    shape = ModelConfig(hidden_size=16, n_layers=1, n_heads=2, n_kv_heads=1, intermediate_size=32)
    make_model(tmp_path / "tiny", word_tokenizer([BLOCKS], NAMES), shape, max_position_embeddings=256, seed=0)
    found = run("--policy", str(tmp_path / "tiny"))
    assert found.code == 2
    assert "a model that cannot read texts" in found.err


def test_nl2plan_by_a_word_level_folder_of_another_pipeline_ends_with_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = ModelConfig(hidden_size=16, n_layers=1, n_heads=2, n_kv_heads=1, intermediate_size=32)
    make_model(tmp_path / "tiny", word_tokenizer([BLOCKS], NAMES), shape, max_position_embeddings=256, seed=0)
    (tmp_path / "task.txt").write_text("A text.")
    assert nl2plan.main([str(tmp_path / "task.txt"), "--policy", str(tmp_path / "tiny")]) == 2
    told = {"speaker": {"folder": str(tmp_path / "tiny")}}
    with pytest.raises(BadInputError, match="a model that cannot read texts"):
        NL2PLAN.stages(NL2PLAN.config.model_validate(told))
    assert "got: a tokenizer that knows the words of its runs alone" in capsys.readouterr().err


# --- the parts


def test_repair_loop_ends_with_the_first_plan_and_asks_about_the_last_answer_only() -> None:
    said = iter(["nothing", BROKEN, RIGHT, "not asked for"])

    def write(messages: Conversation, seed: int) -> str:
        return next(said)

    generator, texts = StandInGenerator(write), FormalisationConfig(detail="name", rendering="compact")
    with FastDownward(PlannerConfig(search="first")) as planner:
        judge = FormalisationJudge(BLOCKS, proving(planner))
        turns: list[Turn] = list(RepairLoop(generator, judge, texts, SamplingConfig(), turns=9).run("prompt\n"))
    assert [(turn.number, turn.is_parsed, turn.is_solved) for turn in turns] == [
        (0, False, False), (1, False, False), (2, True, True)]  # fmt: skip
    first, second, third = map(plain_text, generator.asked)
    assert first == "prompt\n" and second.startswith("prompt\nnothing\nfeedback:\n")
    assert third.startswith(f"prompt\n{BROKEN}\nfeedback:\n") and "nothing" not in third


def test_repair_loop_draws_the_first_answer_and_the_further_ones_each_at_its_temperature() -> None:
    class Recording(StandInGenerator):
        temperatures: ClassVar[list[float]] = []

        def complete(self, prompts: Any, sampling: SamplingConfig, **options: Any) -> Any:
            self.temperatures.append(sampling.temperature)
            return super().complete(prompts, sampling, **options)

    generator, texts = Recording(lambda _messages, _seed: BROKEN), FormalisationConfig(detail="name")
    with FastDownward(PlannerConfig(search="first")) as planner:
        judge = FormalisationJudge(BLOCKS, proving(planner))
        for sampling, again in ((SamplingConfig(), {}), (SamplingConfig(temperature=0.3), {"repair_temperature": 0.0})):
            list(RepairLoop(generator, judge, texts, sampling, turns=2, **again).run("prompt"))
    assert generator.temperatures == [0.0, 0.7, 0.7, 0.3, 0.0, 0.0]


def test_best_answer_is_the_first_with_a_plan_and_nothing_to_mend() -> None:
    class Answer(NamedTuple):
        is_parsed: bool
        is_solved: bool
        feedback: str

    unread, unsolved = Answer(False, False, "a bracket"), Answer(True, False, "no plan")
    flattered, accepted = Answer(True, True, "a name"), Answer(True, True, "")
    assert best_answer([unread, flattered, accepted, unsolved]) is accepted
    assert best_answer([unread, flattered, unsolved]) is flattered
    assert best_answer([unsolved, unread]) is unsolved
    assert best_answer([unread]) is unread


def test_proving_of_what_planner_or_validator_refuse_is_an_outcome_but_an_unknown_search_is_not() -> None:
    with FastDownward(PlannerConfig(search="first")) as planner:
        solve = proving(planner)
        assert solve(BLOCKS_TEXT, RIGHT).plan == tuple(PLAN.splitlines())
        assert solve(BLOCKS_TEXT, BROKEN).status is PlannerStatus.UNSUPPORTED
    with FastDownward(PlannerConfig(search="astar(nonsense())")) as planner, pytest.raises(ConfigError):
        proving(planner)(BLOCKS_TEXT, RIGHT)
    assert issubclass(ConfigError, BadInputError)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Put the dark green one on A.", []),
        ("Put DARK_GREEN on a's left.", []),
        ("Put the dark\n green one on top.", ["a"]),
        ("Put the darkgreen one anywhere.", ["dark-green", "a"]),
    ],
    ids=["two words", "capitals", "a line apart", "within words"],
)
def test_unnamed_objects_are_those_that_stand_nowhere_as_words(text: str, expected: list[str]) -> None:
    problem = parse_problem(written("(handempty)", "(clear a)", "dark-green a"), BLOCKS)
    assert unnamed_objects(problem, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Put dark_green on A, and it's a 2nd one of 3.", []),
        ("Put c on b1, then b1 on the handempty table.", ["c", "b1"]),
        ("Put a on the well-known one, i say.", []),
        ("Put red_block-2 on a.", ["red_block-2"]),
        ("At 5pm, i.e. in 24h, go 10km/h in the U.S. to b 5.", ["b"]),
    ],
    ids=["declared", "each once", "English words", "marks in a name", "units"],
)
def test_undeclared_names_are_words_that_can_only_be_names(text: str, expected: list[str]) -> None:
    problem = parse_problem(written("(handempty)", "(clear a)", "dark-green a"), BLOCKS)
    assert undeclared_names(problem, BLOCKS, text) == expected

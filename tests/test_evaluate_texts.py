"""`plansmith evaluate --formalise`: a scripted server writes problems of texts; what is measured, kept and refused."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import BLOCKS_TEXT
from scripted_server import MODEL, Request, Server, completion, fail, serving
from test_formalisation_report import Run as WrittenRun
from test_planbench import write_planbench

from pipelines.commands import evaluate
from pipelines.stages.graph import Graph
from pipelines.trials.options import evaluation_parser
from pipelines.trials.own_texts import (
    GivenRepairSettings,
    GivenTrialSettings,
    OwnTexts,
    TextTrial,
    read_own_texts,
    text_stages,
    trial_stages,
)
from pipelines.trials.text_output import stored_texts
from plansmith.config.formalisation import FormalisationConfig, JudgingConfig
from plansmith.config.generation import SamplingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.training import EngineNumerics, ModelConfig
from plansmith.data.rows import Split
from plansmith.errors import BadInputError
from plansmith.learning.models import bpe_tokenizer, make_model
from plansmith.pddl.printer import print_problem
from plansmith.problems.library import DOMAINS_FOLDER, load_domain
from plansmith.text.natural_language_reader import read_problem_text
from plansmith.text.statements import numbered_text

Capture = pytest.CaptureFixture[str]


def pile(objects: str, goal: str) -> str:
    init = " ".join(f"(ontable {name}) (clear {name})" for name in objects.split())
    return f"(define (problem p) (:domain blocksworld) (:objects {objects})\n" \
        f" (:init {init} (handempty)) (:goal (and {goal})))\n"  # fmt: skip


RIGHT = pile("red blue", "(on red blue)")
BROKEN = RIGHT.rstrip()[:-1]
PROBLEMS = {
    "named": RIGHT,
    "renamed": pile("a b", "(on b a)"),
    "three": pile("a b c", "(on a b) (on b c)"),
    "never": pile("a b", "(on a b) (on b a)"),
}
TEXTS = {"named": "Red on blue.", "renamed": "b on a.", "three": "Three blocks.", "never": "Each on the other."}
NO_ROOM = {
    "error": {"message": "This model's maximum context length is 64 tokens. Your messages have 90.", "code": 400}
}


@dataclass(frozen=True)
class Outcome:
    """What one command left."""

    code: int
    out: str
    err: str
    content: dict[str, Any]


Run = Callable[..., Outcome]


def write(request: Request) -> tuple[int, Any]:
    """Answer with the same pile of two to every text, about three blocks only once it is told of a mistake."""
    is_first = "Feedback:" not in request.prompt
    return 200, completion(BROKEN if "Three" in request.prompt and is_first else RIGHT)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(write) as scripted:
        yield scripted


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a domain, four problems and their texts."""
    for name, text in PROBLEMS.items():
        for path, content in ((f"problems/{name}.pddl", text), (f"texts/{name}.txt", TEXTS[name])):
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_text(content, encoding="utf-8")
    (tmp_path / "domain.pddl").write_text(BLOCKS_TEXT, encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(server: Server, folder: Path, capsys: Capture) -> Run:
    """Return a function that evaluates the server's model at the texts above; words are further options."""

    def command(*words: str, given: tuple[str, ...] = ("domain.pddl", "problems", "texts")) -> Outcome:
        out = folder / "out.json"
        out.unlink(missing_ok=True)
        told = ["--formalise", "--policy", server.url, "--store", str(folder / "store"), "--out", str(out)]
        for name, path in zip(("--domain", "--problems", "--texts"), given, strict=False):
            told += [name, str(folder / path)]
        code = evaluate.main([*told, "--concurrency", "1", "--planner-time-s", "10", *words])
        shown = capsys.readouterr()
        return Outcome(code, shown.out, shown.err, json.loads(out.read_text("utf-8")) if out.exists() else {})

    return command


def test_answers_are_measured_repaired_and_compared_up_to_names(server: Server, run: Run) -> None:
    found = run("--repair-turns", "2", "--show", "5")
    assert (found.code, len(server.requests)) == (0, 4), found.err
    assert [request.body["temperature"] for request in server.requests] == [0.0, 0.0, 0.0, 0.7]
    content = found.content
    names = ("policy", "n", "svr", "psr", "psr_of_all", "identical", "flattered", "task_success", "repair_turns")
    assert [content[name] for name in names] == [MODEL, 3, 1, 1, 1, 1 / 3, 1 / 3, 2 / 3, 2]
    assert content["equivalent"] == pytest.approx(2 / 3)
    # of facts and goals: 6 of 6; (handempty) of 6 + 6 - 1; (handempty) of 9 + 6 - 1
    assert content["tsr"] == pytest.approx((1 + 1 / 11 + 1 / 14) / 3)
    assert [turn["svr"] for turn in content["by_turn"]] == pytest.approx([2 / 3, 1, 1])
    assert [(turn["n_handed_back"], turn["n_mended"]) for turn in content["repair"]] == [(1, 1)]
    assert {item["problem"]: (item["outcome"], item["turn"]) for item in content["answers"]} == {
        "named": ("identical", 0), "renamed": ("equivalent", 0), "three": ("different", 1)}  # fmt: skip
    assert "66.7% of 3 texts end as a problem of the right meaning" in found.out
    assert found.out.count("has a plan, means another thing") == 1  # the only failure, with text, answer, difference
    assert "Three blocks." in found.out and "-  (:objects a b c)" in found.out and "+  (:objects blue red)" in found.out


def test_reference_without_a_plan_is_listed_and_never_asked_for(server: Server, run: Run) -> None:
    found = run()
    assert found.content["without_a_plan"] == ["never"]
    assert "not asked for: 1 whose reference has no plan within the limits (never)" in found.out
    assert not any("Each on the other" in request.prompt for request in server.requests)


def test_same_command_asks_nothing_and_more_turns_only_hand_back(server: Server, run: Run) -> None:
    first = run("--repair-turns", "0")
    assert len(server.requests) == 3 and first.content["by_turn"] == []
    assert first.content["svr"] == pytest.approx(2 / 3)
    again = run("--repair-turns", "0")
    assert (len(server.requests), again.out, again.content) == (3, first.out, first.content)
    assert run("--repair-turns", "1").content["svr"] == 1
    assert len(server.requests) == 4


def test_changed_text_is_asked_anew(server: Server, run: Run, folder: Path) -> None:
    run("--repair-turns", "0")
    (folder / "texts" / "named.txt").write_text("Blue under red.", encoding="utf-8")
    run("--repair-turns", "0")
    assert len(server.requests) == 6


def test_request_that_fails_is_counted_apart_and_too_many_end_with_code_1(server: Server, run: Run) -> None:
    server.reply = lambda request: fail(request) if "Three" in request.prompt else write(request)
    words = ["--max-retries", "0", "--repair-turns", "0"]
    broken = run(*words)
    assert (broken.code, broken.content) == (1, {}) and "too many requests failed" in broken.err
    found = run(*words, "--max-unjudged-share", "0.5")
    assert (found.code, found.content["n"], found.content["svr"]) == (0, 2, 1)
    assert [item["problem"] for item in found.content["not_judged"]] == ["three"]
    assert "not judged: 1 whose request failed" in found.out


def test_request_that_fails_in_a_repair_turn_keeps_the_other_answers_of_the_turn(server: Server, run: Run) -> None:
    def spoilt(request: Request) -> tuple[int, Any]:
        if "Feedback:" not in request.prompt:
            return 200, completion(BROKEN)
        return fail(request) if "Three" in request.prompt else (200, completion(RIGHT))

    server.reply = spoilt
    broken = run("--max-retries", "0", "--repair-turns", "1")
    assert broken.code == 1 and "1 of 3; the last: " in broken.err
    assert len(server.requests) == 6
    server.reply = write
    found = run("--max-retries", "0", "--repair-turns", "1")
    assert (found.code, len(server.requests)) == (0, 7)
    assert "Three" in server.requests[-1].prompt
    assert found.content["svr"] == 1


def test_text_that_fills_the_window_is_an_answer_without_a_problem_and_is_named(server: Server, run: Run) -> None:
    server.reply = lambda request: (400, NO_ROOM) if "Three" in request.prompt else write(request)
    found = run("--repair-turns", "0")
    assert (found.code, found.content["n"], found.content["not_judged"]) == (0, 3, [])
    assert found.content["svr"] == pytest.approx(2 / 3)
    assert "no room: 1 answers, since what was asked fills the model's window (three)" in found.out


def test_prompt_has_the_text_and_as_much_of_the_domain_as_asked_for(server: Server, run: Run) -> None:
    run("--repair-turns", "0", "--detail", "name", "--rendering", "compact")
    asked = [request.prompt for request in server.requests]
    assert f"domain: blocksworld\n{numbered_text(TEXTS['named'], 'pddl')}" in asked
    run("--repair-turns", "0")
    assert "Actions: (pick-up ?x)" in server.requests[-1].prompt and ":precondition" not in server.requests[-1].prompt


def test_planbench_texts_are_judged_up_to_renaming_and_counted_by_configuration(
    server: Server, run: Run, tmp_path: Path
) -> None:
    texts = {"blocks": {1: "The red block on the blue one.", 2: "Blue on red."}, "blocks_3": {3: "Three."}}
    root = write_planbench(tmp_path / "plan-bench", texts)
    found = run("--planbench", str(root), "--repair-turns", "1", given=())
    assert found.code == 0, found.err
    assert (found.content["n"], found.content["identical"], found.content["equivalent"]) == (3, 0, 1)
    assert {name: figures["n"] for name, figures in found.content["by_level"].items()} == {"blocks": 2, "blocks_3": 1}
    assert "My plan is" not in server.requests[0].prompt and "Another pile" not in server.requests[0].prompt
    assert "policy repaired, blocks_3" in found.out
    one = run("--planbench", str(root / "prompts" / "blocks_3"), "--repair-turns", "0", given=())
    assert one.content["n"] == 1


def test_texts_are_written_where_none_are_given_and_read_back_they_are_the_references(
    server: Server, run: Run, folder: Path
) -> None:
    loaded = load_domain("blocksworld")
    assert loaded.phrases is not None
    phrases = loaded.phrases

    def read(request: Request) -> tuple[int, Any]:
        text = request.prompt.partition("\nText:\n")[2]
        return 200, completion(print_problem(read_problem_text(loaded.domain, phrases, text)))

    server.reply = read
    words = ["--domain", str(DOMAINS_FOLDER / "blocksworld" / "domain.pddl"), "--problems", str(folder / "problems")]
    found = run(*words, "--detail", "name", "--object-names", *"uvwxyz", given=())
    assert found.code == 0, found.err
    assert (found.content["n"], found.content["identical"], found.content["without_a_plan"]) == (3, 1, ["never"])
    assert all(set("uvwxyz") & set(item["reference"].split()) for item in found.content["answers"])


# --- what cannot be asked


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / "texts" / "three.txt").unlink(), "got: no three.txt"),
        (lambda folder: (folder / "texts" / "three.txt").write_text(" \n"), "three.txt: an empty text"),
        (lambda folder: (folder / "texts").rename(folder / "gone"), "problems without a text"),
        (lambda folder: (folder / "problems" / "three.pddl").write_text("(define"), "three.pddl:"),
        (lambda folder: [(folder / "problems" / f"{name}.pddl").write_text(PROBLEMS["never"]) for name in TEXTS],
         "got: no plan of named, never, renamed, three"),
    ],
    ids=["no text", "empty text", "no texts", "a mistake", "no plans"],
)  # fmt: skip
def test_files_that_cannot_be_used_end_with_code_2_and_ask_nobody(
    spoil: Callable[[Path], Any], told: str, server: Server, run: Run, folder: Path
) -> None:
    spoil(folder)
    found = run()
    assert (found.code, found.out, server.requests) == (2, "", [])
    assert told in found.err


def test_domain_without_phrases_where_texts_are_to_be_written_ends_with_code_2(server: Server, run: Run) -> None:
    found = run(given=("domain.pddl", "problems"))
    assert (found.code, server.requests) == (2, [])
    assert "a domain without phrases.yaml where texts are to be written" in found.err
    assert "--texts DIR" in found.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--no-planner"], "--formalise needs a planner"),
        (["--rendering", "zero_shot"], "expected: full or compact"),
        (["--planbench", "x"], "--planbench has domains, problems and texts of its own"),
        (["--object-names", "a"], "--object-names are for texts that are written"),
        (["--repair-turns", "-1"], "--repair-turns is too small"),
        (["--arm", "sft"], "--arm goes with a run"),
    ],
    ids=["planner", "rendering", "planbench", "names", "turns", "arm"],
)
def test_options_that_do_not_go_together_end_with_code_2(words: list[str], told: str, run: Run) -> None:
    found = run(*words)
    assert found.code == 2 and told in found.err


def test_object_name_that_pddl_cannot_hold_ends_with_code_2(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        evaluate.main(["--formalise", "--policy", "x", "--object-names", "a", "the car"])
    assert ended.value.code == 2
    assert "no name that PDDL can hold: 'the car'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--policy", "x", "--domain", "d", "--problems", "p", "--texts", "t"], "--texts goes with --formalise"),
        (["runs/x", "--repair-turns", "0"], "--repair-turns goes with --formalise"),
        (["runs/x", "--formalise"], "--formalise goes with --policy"),
        (["--formalise", "--policy", "x", "--domain", "d"], "no --problems"),
        (["--formalise", "--policy", "x", "--planbench", "nowhere"], "x: no such model folder"),
    ],
    ids=["texts", "turns", "run", "no problems", "no policy"],
)
def test_options_about_texts_are_refused_where_they_mean_nothing(words: list[str], told: str, capsys: Capture) -> None:
    assert evaluate.main(words) == 2
    assert told in capsys.readouterr().err


# --- a model folder


def test_text_that_fills_the_folders_window_ends_with_code_2_before_an_engine_is_started(
    run: Run, tmp_path: Path
) -> None:
    shape = ModelConfig(hidden_size=16, n_layers=1, n_heads=2, n_kv_heads=1, intermediate_size=32)
    make_model(tmp_path / "short", bpe_tokenizer([RIGHT], 300), shape, max_position_embeddings=32, seed=0)
    found = run("--policy", str(tmp_path / "short"), "--detail", "pddl")
    assert found.code == 2
    assert "a problem too long for the model" in found.err and "starting the vLLM engine" not in found.err


def test_answers_of_other_weights_are_other_stages_and_texts_are_shared(folder: Path) -> None:
    words = ["--formalise", "--policy", "x", "--domain", str(folder / "domain.pddl"), "--problems",
             str(folder / "problems"), "--texts", str(folder / "texts")]  # fmt: skip
    own = read_own_texts(evaluation_parser().parse_args(words), FormalisationConfig(), PlannerConfig())

    def keys(policy: str) -> dict[str, str]:
        how: dict[str, Any] = {"sampling": SamplingConfig(), "engine": EngineNumerics(max_model_len=64),
                               "prompting": "full", "policy": policy}  # fmt: skip
        repair = GivenRepairSettings(turns=1, feedback="validator", texts=FormalisationConfig(),
                                     judging=JudgingConfig(planner=PlannerConfig()), **how)  # fmt: skip
        return stage_keys(own, TextTrial(GivenTrialSettings(split=Split.TEST, **how), repair, object()))

    one, other = keys("one"), keys("other")
    assert list(one) == ["read_problems", "solve_references", "try_texts", "judge_texts", "repair"]
    assert [name for name in one if one[name] == other[name]] == ["read_problems", "solve_references"]


def stage_keys(own: OwnTexts, trial: TextTrial) -> dict[str, str]:
    graph = Graph(0)
    trial_stages(graph, text_stages(graph, own, PlannerConfig()), trial)
    return {stage.name: stage.key for stage in graph.stages}


# --- a run


@pytest.fixture
def written(tmp_path: Path) -> WrittenRun:
    """Return a run with the first answers of two policies: right, or of another meaning."""
    found = WrittenRun(tmp_path)
    found.add_data()
    found.add_arm("untrained", "initial_policy", *["flattered"] * 4)
    found.add_arm("sft", "initial_policy", "right", "right", "flattered", "flattered")
    return found


def of_run(run: WrittenRun, *words: str) -> Any:
    arguments: argparse.Namespace = evaluation_parser().parse_args(["runs/x", *words])
    return stored_texts(run.so_far, Path("runs/x"), arguments)


def test_arm_of_a_run_shows_its_stored_figures_and_failures(written: WrittenRun) -> None:
    evaluation = of_run(written)
    assert (evaluation.head["run"], evaluation.figures.name, evaluation.figures.equivalent) == ("by-hand", "sft", 0.5)
    assert list(evaluation.figures.by_level) == ["L1", "L2"] and "sft, L2" in evaluation.report()
    assert len(evaluation.failed(9)) == 2 and evaluation.failed(9)[0].startswith("t3 (rovers L2, turn 0): ")
    assert of_run(written, "--arm", "untrained").figures.equivalent == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--arm", "sftt"], "did you mean sft"),
        (["--problems", "p"], "plansmith evaluate --formalise --policy .*initial_policy.*model --domain"),
    ],
    ids=["arm", "problems"],
)
def test_arm_of_a_run_that_is_not_there_or_gets_problems_is_refused(
    words: list[str], told: str, written: WrittenRun
) -> None:
    with pytest.raises(BadInputError, match=told):
        of_run(written, *words)


def test_run_without_judged_answers_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no arm is finished"):
        of_run(WrittenRun(tmp_path))


def test_text_whose_answer_goes_in_circles_is_named(server: Server, run: Run) -> None:
    def reply(request: Any) -> tuple[int, Any]:
        code, said = write(request)
        if "Three" in request.prompt:
            said["choices"][0]["finish_reason"] = "repetition"
        return code, said

    server.reply = reply
    found = run("--repair-turns", "0")
    assert "in circles: 1 answers, since the engine ends what goes in circles (three)" in found.out

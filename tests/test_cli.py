"""The commands: help, exit codes, dry runs, and one clear message with nothing half-written for every bad input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from pipelines import pddl_instruct
from pipelines.commands import evaluate
from plansmith import __version__, cli
from plansmith.console import exit_code_of
from plansmith.errors import BadInputError, PddlParseError, PlansmithError, StalePolicyError
from plansmith.pipeline import pipeline_names

ROOT = Path(__file__).resolve().parent.parent
RUN = [sys.executable, str(ROOT / "pipelines" / "pddl_instruct.py")]
STAGES = ("sample_problems", "synthesize_plans", "phase1", "roll_out_1", "judge_2", "stage1_1", "stage2_2")

needs_install = pytest.mark.skipif(
    not pipeline_names(), reason="entry points exist only where the package is installed (make test)"
)
Capture = pytest.CaptureFixture[str]


def on_disk(folder: Path) -> list[str]:
    """Return everything below a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def only_message(capsys: Capture) -> str:
    """Return what stderr got, which must be one message and no traceback; stdout must be empty."""
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    head, *details = err.rstrip("\n").split("\n")
    assert head.startswith("error: ")
    assert all(line.startswith(("  got: ", "  expected: ", "  to mend it: ")) for line in details), err
    return err


# --- help and exit codes


def test_cli_without_arguments_prints_its_commands(capsys: Capture) -> None:
    assert cli.main([]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in ("run", "evaluate", "report"))


@pytest.mark.parametrize(
    ("main", "arguments", "words"),
    [
        (cli.main, ["--help"], ["run", "evaluate", "report", "--version"]),
        (cli.main, ["report", "--help"], ["RUN", "runs/pddl_instruct-demo"]),
        (pddl_instruct.main, ["--help"], ["--preset", "smoke", "demo", "--set", "--seed", "--resume", "--dry-run"]),
        (evaluate.main, ["--help"], ["RUN", "--arm", "--problems", "--out"]),
    ],
    ids=["plansmith", "report", "pddl_instruct", "evaluate"],
)
def test_help_ends_with_code_0_and_names_every_option(
    main: object, arguments: list[str], words: list[str], capsys: Capture
) -> None:
    assert callable(main)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert [word for word in words if word not in text] == []


def test_version_is_the_package_version(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"plansmith {__version__}\n"


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (cli.main, ["fly"]),
        (cli.main, ["report", "runs/x", "--fast"]),
        (pddl_instruct.main, ["--fast"]),
        (evaluate.main, []),
    ],
    ids=["no such command", "report", "pddl_instruct", "evaluate without a run"],
)
def test_unknown_argument_ends_with_code_2_and_the_usage(main: object, arguments: list[str], capsys: Capture) -> None:
    assert callable(main)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: plansmith" in capsys.readouterr().err


def test_run_without_a_pipeline_tells_how(capsys: Capture) -> None:
    assert cli.main(["run"]) == 2
    assert "usage: plansmith run PIPELINE" in capsys.readouterr().out
    assert cli.main(["run", "--help"]) == 0
    assert "--seeds FIRST-LAST_OR_COUNT" in capsys.readouterr().out


def test_run_unknown_pipeline_names_the_known_ones(capsys: Capture) -> None:
    assert cli.main(["run", "pddl_destruct"]) == 2
    message = only_message(capsys)
    assert "no such pipeline" in message
    assert "'pddl_destruct'" in message


@pytest.mark.parametrize(
    ("error", "code", "first"),
    [
        (BadInputError("wrong file", where="x.pddl", got="a", expected="b", cure="c"), 2, "error: x.pddl: wrong file"),
        (PddlParseError("not closed", where="d.pddl:3:7"), 2, "error: d.pddl:3:7: not closed"),
        (PlansmithError("broke"), 1, "failed: broke"),
        (StalePolicyError("old weights"), 1, "failed: old weights"),
    ],
)
def test_exit_code_of_an_error_is_its_own_with_one_message(
    error: PlansmithError, code: int, first: str, capsys: Capture
) -> None:
    def work() -> int:
        raise error

    assert exit_code_of(work) == code
    assert capsys.readouterr().err.splitlines()[0] == first


def test_exit_code_of_work_that_ends_is_its_own() -> None:
    assert [exit_code_of(lambda: 0), exit_code_of(lambda: 1)] == [0, 1]


def test_exit_code_of_an_interrupt_says_how_to_go_on(capsys: Capture) -> None:
    def work() -> int:
        raise KeyboardInterrupt

    assert exit_code_of(work) == 130
    assert "continues from the last finished stage" in capsys.readouterr().err


def test_exit_code_of_a_process_told_to_end_is_143_and_the_signal_is_as_before(capsys: Capture) -> None:
    def work() -> int:
        signal.raise_signal(signal.SIGTERM)
        return 0

    before = signal.getsignal(signal.SIGTERM)
    assert exit_code_of(work) == 143
    assert "told to end; the same command continues" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before


def test_exit_code_of_a_command_without_stages_promises_nothing(capsys: Capture) -> None:
    def work() -> int:
        raise KeyboardInterrupt

    assert exit_code_of(work, has_stages=False) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_output_that_nobody_reads_to_its_end_is_no_error() -> None:
    command = f"{sys.executable} -m plansmith.cli problems ferry -n 300 | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 141
    assert "Traceback" not in done.stderr


def test_exit_code_of_a_bug_lets_it_through() -> None:
    def work() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        exit_code_of(work)


# --- dry runs


def test_dry_run_prints_config_and_stages_and_writes_nothing(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    arguments = ["--preset", "smoke", "--set", "phase2.temperature=0.5", "--seed", "4", "--dry-run", "--runs", "runs"]
    done = subprocess.run(
        [*RUN, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    config, _, stages = done.stdout.partition("\n\nrun folder: ")
    values = json.loads(config)
    assert values["name"] == "pddl_instruct-smoke-seed4"
    assert values["seed"] == 4
    assert values["phase2"]["temperature"] == 0.5
    assert stages.startswith("runs/pddl_instruct-smoke-seed4\n")
    lines = [line.split() for line in stages.splitlines()[2:]]
    assert {tuple(line[:2]) for line in lines} == {("to", "run")}
    assert set(STAGES) <= {line[2] for line in lines}
    assert on_disk(tmp_path) == []


def test_dry_run_shows_which_stages_a_setting_touches(tmp_path: Path, capsys: Capture) -> None:
    def keys(*arguments: str) -> dict[str, str]:
        assert pddl_instruct.main(["--preset", "smoke", "--dry-run", "--runs", str(tmp_path), *arguments]) == 0
        lines = capsys.readouterr().out.partition("run folder: ")[2].splitlines()[2:]
        cells = [re.split(r"\s{2,}", line) for line in lines]
        return {name: key for _, name, key, _ in cells}

    def kept(setting: str) -> set[str]:
        after = keys("--set", setting)
        return {name for name in before if before[name] == after[name]}

    before = keys()
    assert before == keys("--name", "other")
    first = {
        "sample_problems", "synthesize_plans", "corrupt_plans", "write_chains", "encode_examples", "initial_policy",
        "try_untrained", "judge_untrained", "phase1", "try_phase1", "judge_phase1", "explain_plans",
    }  # fmt: skip
    assert kept("phase2.temperature=0.5") == first
    in_order = list(before)
    assert kept("phase2.learning_rate_decay=0.25") == set(in_order[: in_order.index("stage1_2")])


# --- bad input


BAD_DOMAIN = """(define (domain blocksworld)
  (:predicates (clear ?x))
  (:action lift :parameters (?x) :effect (up ?x)))
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--preset", "smok"], ["no such preset", "did you mean smoke?"]),
        (["--preset", "smoke", "--set", "phase2.etta=1"], ["unknown key", "phase2.etta", "did you mean eta?"]),
        (["--preset", "smoke", "--set", "phase2.eta=0"], ["phase2.eta", "greater than or equal to 1"]),
        (["--preset", "smoke", "--seed", "-1"], ["seed"]),
        (["--preset", "smoke", "--set", "phase2.eta"], ["not an override"]),
        (["--preset", "smoke", "--set", "model.folder={}/no-model"], ["no such model folder", "{}/no-model"]),
        (["--preset", "smoke", "--set", "model.folder={}"], ["no model here", "config.json"]),
        (["--preset", "smoke", "--set", "problems.domain_file={}/bad.pddl"], ["{}/bad.pddl:3:43", "up"]),
        (["--preset", "smoke", "--set", "problems.domain_file={}/none.pddl"], ["no such domain file", "none.pddl"]),
        (["--preset", "smoke", "--set", "problems.domain_file={}/binary.pddl"], ["cannot be read", "binary.pddl"]),
        (["--preset", "smoke", "--set", "problems.levels=[]", "--set", "problems.folder={}/none"],
         ["no problems here", "no such folder"]),
        (["--preset", "nl2plan"], ["a preset of datasets, not of pddl_instruct", "nl2plan"]),
        (["--preset", "smoke", "--set", "model.vocabulary_size=500"],
         ["model.vocabulary_size: no stage reads this setting", "tokenizer=words"]),
        (["--preset", "smoke", "--set", "phases=phase1", "--set", "phase2.stage1.learning_rate=0.1"],
         ["phase2.stage1.learning_rate: no stage reads this setting", "phases=phase1"]),
        (["--resume", "--name", "gone"], ["no run here", "gone"]),
        (["--resume", "--set", "seed=1"], ["--resume takes the settings of the run", "leave out --resume"]),
    ],
    ids=["preset", "key", "bounds", "seed", "override", "model folder", "empty model folder", "domain syntax",
         "no domain", "domain is no text", "no problems", "preset of others", "unread", "unread part",
         "resume of nothing", "resume with changes"],
)  # fmt: skip
def test_run_with_bad_input_ends_with_code_2_and_one_message(
    arguments: list[str], words: list[str], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "bad.pddl").write_text(BAD_DOMAIN, encoding="utf-8")
    (tmp_path / "binary.pddl").write_bytes(b"(define \xff\xfe")
    before = on_disk(tmp_path)
    filled = [argument.replace("{}", str(tmp_path)) for argument in arguments]
    assert pddl_instruct.main([*filled, "--runs", str(tmp_path / "runs")]) == 2
    message = only_message(capsys)
    assert [word for word in words if word.replace("{}", str(tmp_path)) not in message] == [], message
    assert on_disk(tmp_path) == before


def test_run_in_a_folder_below_a_file_ends_with_code_2_and_leaves_the_file(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    assert pddl_instruct.main(["--preset", "smoke", "--runs", str(tmp_path / "file" / "runs")]) == 2
    message = only_message(capsys)
    assert "the run folder cannot be written" in message
    assert str(tmp_path / "file") in message
    assert on_disk(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("content", ["{}", "[1]", "{", '{"config": {"phase2": 3}}'])
def test_resume_of_a_damaged_record_ends_with_code_2(content: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "run.json").write_text(content, encoding="utf-8")
    assert pddl_instruct.main(["--resume", "--name", "old", "--runs", str(tmp_path)]) == 2
    assert "run.json" in only_message(capsys)
    assert on_disk(tmp_path) == ["old", "old/run.json"]


@pytest.mark.parametrize("words", [["--name", "theirs", "--preset", "smoke"], ["--resume", "--name", "theirs"]])
def test_run_in_a_folder_of_another_pipeline_ends_with_code_2(
    words: list[str], tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "run.json").write_text('{"pipeline": "nl2plan", "config": {}}', encoding="utf-8")
    assert pddl_instruct.main([*words, "--runs", str(tmp_path)]) == 2
    message = only_message(capsys)
    assert "a run of another pipeline" in message
    assert "got: nl2plan" in message
    assert on_disk(tmp_path) == ["theirs", "theirs/run.json"]


@pytest.mark.parametrize("content", [None, "{}", "not json"], ids=["missing", "no results", "no JSON"])
def test_report_without_results_ends_with_code_2(content: str | None, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "run.json").write_text('{"pipeline": "pddl_instruct", "config": {"name": "x"}}', encoding="utf-8")
    if content is not None:
        (tmp_path / "report").mkdir()
        (tmp_path / "report" / "results.json").write_text(content, encoding="utf-8")
    before = on_disk(tmp_path)
    assert cli.main(["report", str(tmp_path)]) == 2
    message = only_message(capsys)
    assert "no finished run here" in message or "results.json" in message
    assert on_disk(tmp_path) == before


def test_evaluate_without_a_run_ends_with_code_2(tmp_path: Path, capsys: Capture) -> None:
    assert evaluate.main([str(tmp_path / "gone")]) == 2
    assert "no run here" in only_message(capsys)
    assert on_disk(tmp_path) == []


# --- as installed


@needs_install
def test_installed_command_lists_its_pipelines(capsys: Capture) -> None:
    assert pipeline_names() == ["generalization_gap", "nl2plan", "nl_pddl_bench", "pddl_instruct", "self_criteach"]
    assert (
        {entry.name for entry in entry_points(group=cli.COMMANDS)}
        == {"ablate", "dataset", "domains-write", "evaluate", "formalise", "nl2plan", "run", "serve"}
        == {"run", "domains-write", *cli.DELEGATED}
    )
    assert cli.main(["run"]) == 2
    assert "pddl_instruct" in capsys.readouterr().out


@needs_install
def test_installed_run_hands_its_options_to_the_pipeline(tmp_path: Path, capsys: Capture) -> None:
    arguments = ["--preset", "smoke", "--set", "phase2.eta=3", "--name", "x", "--runs", str(tmp_path), "--dry-run"]
    assert cli.main(["run", "pddl_instruct", *arguments]) == 0
    text = capsys.readouterr().out
    assert '"eta": 3' in text
    assert "stage2_3" in text
    assert on_disk(tmp_path) == []


@needs_install
@pytest.mark.parametrize("name", pipeline_names())
def test_installed_run_without_a_preset_takes_one_that_is_there_and_named_in_the_help(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    assert cli.main(["run", name, "--runs", str(tmp_path), "--dry-run"]) == 0
    pipeline, _, preset = json.loads(capsys.readouterr().out.partition("\n\nrun folder: ")[0])["name"].partition("-")
    assert pipeline == name
    with pytest.raises(SystemExit):
        cli.main(["run", name, "--help"])
    assert f"(default: {preset})" in " ".join(capsys.readouterr().out.split())


@needs_install
def test_installed_evaluate_hands_its_options_on(tmp_path: Path, capsys: Capture) -> None:
    assert cli.main(["evaluate", str(tmp_path), "--arm", "phase1"]) == 2
    assert str(tmp_path) in only_message(capsys)

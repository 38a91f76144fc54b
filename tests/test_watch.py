"""`plansmith watch`: what it reads of a run folder, the figures and failures it shows, its pages and its server."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import http.client
import json
import math
import os
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import pytest
from watched_runs import (
    BROKEN_CHAIN,
    HOSTILE,
    KEYS,
    serving,
    write_artifact,
    write_attempts,
    write_live,
    write_problems,
    write_record,
    write_training,
)

from pipelines.pddl_instruct import PIPELINE
from plansmith.commands import watch
from plansmith.data.artifacts import Artifact, complete_artifacts
from plansmith.data.rows import PlanRow, ProblemRow
from plansmith.data.storage import LOCK_FILE, run_lock
from plansmith.errors import BadInputError
from plansmith.judging.taxonomy import ErrorClass
from plansmith.report.attempts import StepMark
from plansmith.report.finished_stages import find_rows
from plansmith.report.render import DrawnOnce
from plansmith.report.results import Results
from plansmith.report.run_results import results_so_far
from plansmith.report.sections import Plots, Report
from plansmith.report.statistics import wilson_interval
from plansmith.watch import failures as watched_failures
from plansmith.watch import page as watch_page
from plansmith.watch.failures import FailureShelf
from plansmith.watch.page import RunPage, RunsPage, figure
from plansmith.watch.run_view import RunState, RunView, RunWatch, StageState, run_folders
from plansmith.watch.server import Site, server_of

PRECONDITION, GOAL = ErrorClass.PRECONDITION_VIOLATION, ErrorClass.GOAL_NOT_ACHIEVED
LEVELS = {"p1": "3 blocks", "p2": "3 blocks", "p3": "4 blocks", "p4": "4 blocks"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a run that has tried its untrained policy: 1 of 2 with three blocks, 0 of 2 with four."""
    folder = tmp_path / "runs" / "demo"
    write_record(folder)
    write_problems(folder, LEVELS)
    write_attempts(folder, "untrained", {"p1": None, "p2": PRECONDITION, "p3": PRECONDITION, "p4": GOAL})
    return folder


def view_of(folder: Path, now: float | None = None) -> RunView:
    return RunWatch(folder).view(time.time() if now is None else now)


def report_of(folder: Path) -> Report | None:
    return watch.report_so_far(view_of(folder).run)


def results_of(folder: Path) -> Results:
    """Return the results of a run so far, of which there are some."""
    run = view_of(folder).run
    found = results_so_far(dataclasses.replace(run, config=PIPELINE.config.model_validate(run.config)))
    assert found is not None
    return found


def page_of(folder: Path) -> RunPage:
    return RunPage(folder, watch.report_so_far)


def lock_of(folder: Path, text: str) -> None:
    """Leave the lock of a session that has ended."""
    (folder / "artifacts" / LOCK_FILE).write_text(text)


# --- is it alive


def test_state_without_a_session_is_not_started(tmp_path: Path) -> None:
    write_record(tmp_path)
    view = view_of(tmp_path)
    assert (view.state, view.name, view.run.preset, view.seed) == (RunState.NOT_STARTED, "hand-made", "by-hand", 3)


def test_state_while_the_lock_is_held_is_running_and_afterwards_stopped(run: Path) -> None:
    with run_lock(run / "artifacts"):
        assert view_of(run).state is RunState.RUNNING
    assert view_of(run).state is RunState.STOPPED


def test_state_of_a_lock_that_another_process_of_the_machine_wrote_is_stopped(run: Path) -> None:
    with run_lock(run / "artifacts"):
        lock_of(run, f"process {os.getpid() + 1} on {os.uname().nodename}")
        assert view_of(run).state is RunState.STOPPED


@pytest.mark.parametrize(
    ("said", "state", "ended_by"),
    [
        ("finished", RunState.FINISHED, ""),
        ("ended: StalledError", RunState.FAILED, "StalledError"),
        ("ended: KeyboardInterrupt", RunState.STOPPED, "KeyboardInterrupt"),
        ("roll_out_1", RunState.STOPPED, ""),
    ],
)
def test_state_of_an_ended_run_is_what_it_said_last(run: Path, said: str, state: RunState, ended_by: str) -> None:
    lock_of(run, "")
    write_live(run, "stage", said, moved=time.time())
    view = view_of(run)
    assert (view.state, view.ended_by) == (state, ended_by)


def test_state_of_a_run_that_says_it_failed_before_and_was_started_again_is_running(run: Path) -> None:
    write_live(run, "stage", "ended: StalledError", moved=time.time())
    with run_lock(run / "artifacts"):
        assert view_of(run).state is RunState.RUNNING


def test_state_of_a_run_with_results_after_all_artifacts_is_finished(run: Path) -> None:
    lock_of(run, "")
    (run / "report").mkdir()
    (run / "report" / "results.json").write_text("{}")
    assert view_of(run).state is RunState.FINISHED
    os.utime(run / "report" / "results.json", (1, 1))
    assert view_of(run).state is RunState.STOPPED
    (run / "detailed" / "report").mkdir(parents=True)  # an arm of an ablation
    (run / "detailed" / "report" / "results.json").write_text("{}")
    assert view_of(run).state is RunState.FINISHED


def test_state_of_a_run_on_another_machine_is_running_until_it_has_said_nothing_for_long(run: Path) -> None:
    lock_of(run, "process 1 on elsewhere")
    write_live(run, "trainer", "phase 1", moved=time.time())
    now = time.time()
    assert view_of(run, now + 10).state is RunState.RUNNING
    assert view_of(run, now + 301).state is RunState.SILENT


def test_view_takes_no_lock_so_that_a_run_can_start_meanwhile(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock_of(run, "")
    asked: list[object] = []
    monkeypatch.setattr("fcntl.flock", lambda *arguments: asked.append(arguments))
    view_of(run)
    assert asked == []


# --- its stages


def test_stages_with_their_keys_known_say_what_is_reused_done_running_and_to_come(run: Path) -> None:
    keys = {"sample_problems": KEYS["problems"], "synthesize_plans": KEYS["plans"]}
    later = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("corrupt_plans", "phase1", "report")}
    write_record(run, stages=keys | later)
    with run_lock(run / "artifacts"):
        os.utime(run / "artifacts" / LOCK_FILE, (time.time() + 30, time.time() + 30))
        write_live(run, "stage", "phase1", done=3, total=5, moved=time.time() + 31)
        view = view_of(run)
    states = {line.name: line.state for line in view.stages}
    assert states == {
        "sample_problems": StageState.REUSED,
        "synthesize_plans": StageState.REUSED,
        "corrupt_plans": StageState.NOT_NEEDED,
        "phase1": StageState.RUNNING,
        "report": StageState.TO_COME,
    }
    assert (view.stage, view.number, view.count, view.n_unnamed, view.n_superseded) == ("phase1", 4, 5, 0, 3)


def test_stages_without_known_keys_are_those_on_disk_and_a_number_to_come(run: Path) -> None:
    with run_lock(run / "artifacts"):
        os.utime(run / "artifacts" / LOCK_FILE, (time.time() - 30, time.time() - 30))
        write_live(run, "stage", "phase1", done=4, total=37, moved=time.time())
        view = view_of(run)
    assert [line.name for line in view.stages][-1] == "phase1"
    assert (view.stages[-1].state, view.number, view.n_unnamed) == (StageState.RUNNING, 5, 31)
    assert {line.state for line in view.stages[:-1]} == {StageState.DONE}


def test_stage_whose_weights_were_removed_says_so(run: Path) -> None:
    [policy] = [a for a in complete_artifacts(run / "artifacts") if a.key == KEYS["policy"]]
    policy.remove_weights("iteration 2 is there")
    [line] = [line for line in view_of(run).stages if line.removed]
    assert line.name == policy.manifest.provenance.stage
    assert "iteration 2 is there" in line.removed
    assert f'title="{line.removed}">without weights' in page_of(run).snapshot()


def test_stage_of_a_run_that_says_nothing_is_the_artifact_in_the_making(run: Path) -> None:
    (run / "artifacts" / f"phase1-{'0' * 12}.partial" / "scratch").mkdir(parents=True)
    lock_of(run, "")
    view = view_of(run)
    assert (view.stage, view.stages[-1].state) == ("phase1", StageState.INTERRUPTED)


def test_artifacts_made_from_one_that_was_replaced_are_not_of_the_run(run: Path) -> None:
    problems = (ProblemRow, [])
    write_artifact(run / "artifacts", "phase1", {}, inputs={"problems": KEYS["problems"]})
    newer = write_artifact(run / "artifacts", "sample_problems", {"rows": problems}, key="f" * 64)
    created = json.loads((newer.folder / "manifest.json").read_text()) | {"created": "2100-01-01T00:00:00+00:00"}
    (newer.folder / "manifest.json").write_text(json.dumps(created))
    view = view_of(run)
    assert set(view.run.artifacts) == {"synthesize_plans", "initial_policy", "sample_problems"}
    assert view.run.artifacts["sample_problems"].key == "f" * 64
    assert view.n_superseded == 4  # the old problems, and the training, attempts and verdicts that need them


DAMAGED = ["", "{", "[]", '{"doing": "x"}', '{"source": "a", "doing": "b", "moved": NaN}',
           '{"source": "a", "doing": 5, "done": [], "values": 3, "moved": 1e999}']  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_files_leave_out_what_they_should_say(run: Path, text: str) -> None:
    write_live(run, "run", "drawing problems", moved=time.time())
    (run / "live" / "trainer.json").write_text(text)
    (run / "run.json").write_text(text)
    (run / "stages.json").write_text(text if "doing" not in text else "{")
    damaged = run / "artifacts" / f"phase1-{'1' * 12}"
    damaged.mkdir()
    (damaged / "manifest.json").write_text(text)
    view = view_of(run)
    assert [work.source for work in view.works] == ["run"]
    assert (view.name, view.seed, len(view.run.artifacts)) == ("demo", None, 5)


def test_live_file_with_another_kind_of_time_breaks_nothing(run: Path) -> None:
    write_live(run, "run", "drawing problems", moved=time.time())
    write_live(run, "trainer", "phase 1", moved="soon")
    assert "trainer" not in [work.source for work in view_of(run).works]


def test_truncated_table_is_no_artifact_and_the_page_stands(run: Path) -> None:
    (table,) = (run / "artifacts").glob("judge_untrained-*/rows.parquet")
    table.write_bytes(table.read_bytes()[:100])
    assert "judge_untrained" not in view_of(run).run.artifacts
    assert "No policy has been tried yet" in page_of(run).snapshot()


def test_tables_removed_after_they_were_found_give_no_figures_and_no_error(run: Path) -> None:
    page = page_of(run)
    seen = page.watch.view(0).run
    for table in (run / "artifacts").glob("*/rows.parquet"):
        table.unlink()
    assert "No policy has been tried yet" in page.snapshot()
    assert FailureShelf().failures(seen) == {}


# --- its figures


def test_figures_of_an_arm_are_counted_by_level(run: Path) -> None:
    found = results_of(run)
    three, four = found.arms["untrained"].by_level["3 blocks"], found.arms["untrained"].by_level["4 blocks"]
    assert (three.n, three.n_valid, three.accuracy, three.errors[PRECONDITION]) == (2, 1, 0.5, 1)
    assert (four.n, four.n_valid, four.errors[PRECONDITION], four.errors[GOAL]) == (2, 0, 1, 1)
    assert three.ci95 == pytest.approx(wilson_interval(1, 2))
    assert "The untrained policy solves 50% of 2 test problems (3 blocks)." in page_of(run).snapshot()


def test_figures_of_rollouts_stand_by_iteration(run: Path) -> None:
    write_attempts(run, "2", {"p1": None, "p3": GOAL}, tried="roll_out")
    write_attempts(run, "1", {"p1": GOAL, "p3": GOAL}, tried="roll_out")
    found = results_of(run)
    assert [(r.iteration, r.n, r.n_valid, r.errors[GOAL]) for r in found.rollouts] == [(1, 2, 0, 2), (2, 2, 1, 1)]
    assert found.rollout_valid_rate == (0.0, 0.5)
    assert found.losses.reasoning == ()


def test_figures_of_a_diverged_training_leave_out_its_losses_and_count_them(run: Path) -> None:
    write_training(run, "phase1", [3.0, math.nan, math.inf, 2.0], tokens_per_s=1500.0)
    found, html = results_of(run), page_of(run).snapshot()
    assert [(curve.steps, curve.losses) for curve in found.curves] == [((1, 4), (3.0, 2.0))]
    assert "2 optimiser steps had a loss that is NaN or infinite" in html
    assert "1,500<small>tokens/s in phase 1" in html


def test_figures_before_anything_was_tried_are_none(tmp_path: Path) -> None:
    write_record(tmp_path)
    write_problems(tmp_path, LEVELS)
    assert report_of(tmp_path) is None
    assert "No policy has been tried yet" in page_of(tmp_path).snapshot()


@pytest.mark.parametrize("record", ['{"preset": "x"}', '{"pipeline": "gone", "config": {}}',
                                    '{"pipeline": "pddl_instruct", "config": {"phase2": 3}}'])  # fmt: skip
def test_figures_of_a_run_that_nobody_knows_are_none_and_its_stages_are_shown(run: Path, record: str) -> None:
    (run / "run.json").write_text(record)
    assert report_of(run) is None
    assert "judge untrained" in page_of(run).snapshot()


def test_page_reads_the_speed_of_each_artifact_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    measure = watch_page.tokens_per_s
    monkeypatch.setattr(watch_page, "tokens_per_s", lambda stage: read.append(stage.name) or measure(stage))
    page = page_of(run)
    page.snapshot()
    page.snapshot()
    before = ["initial_policy", "judge_untrained", "sample_problems", "synthesize_plans", "try_untrained"]
    assert sorted(read) == before
    write_training(run, "phase1", [1.0])
    page.snapshot()
    assert read[len(before) :] == ["phase1"]


def plots_of(folder: Path, drawings: DrawnOnce) -> dict[str, object]:
    """Return the plots of a run's report so far by their slugs."""
    report = report_of(folder)
    assert report is not None
    [plots] = [block for section in report.course for block in section.blocks if isinstance(block, Plots)]
    return {plot.slug: plot for plot, _ in map(drawings.drawn, plots.drawings)}


def test_drawings_are_drawn_again_only_when_what_they_show_changed(run: Path) -> None:
    drawings = DrawnOnce()
    before = plots_of(run, drawings)
    write_training(run, "phase1", [3.0, 2.0])
    after = plots_of(run, drawings)
    assert after.keys() - before.keys() == {"training-phase1"}
    assert after["accuracy"] is before["accuracy"]
    write_attempts(run, "phase1", dict.fromkeys(LEVELS))
    assert plots_of(run, drawings)["accuracy"] is not before["accuracy"]


# --- its failures


def test_failures_carry_the_step_that_broke_with_its_reason(run: Path) -> None:
    (found,) = FailureShelf().failures(view_of(run).run).values()
    failure = next(item for item in found if item.rollout_id == "untrained-p3")
    assert (failure.attempt.arm, failure.attempt.level, failure.prompt) == ("untrained", "4 blocks", "solve p3")
    assert [step.mark for step in failure.attempt.steps] == [StepMark.OK, StepMark.FAILED]
    assert failure.attempt.first_wrong_step == 2
    assert failure.attempt.steps[1].note == "(stack b a) needs (clear a) (said wrongly: (clear a) does not hold)"


def test_failures_are_the_worst_of_every_kind_the_commonest_kind_first(tmp_path: Path) -> None:
    levels = dict.fromkeys("abcdef", "3 blocks")
    write_problems(tmp_path, levels)
    kinds = dict.fromkeys("abcd", PRECONDITION) | dict.fromkeys("ef", GOAL)
    progress = {"a": 0.9, "b": 0.1, "c": 0.5, "d": 0.3, "e": 0.7, "f": 0.2}
    write_attempts(tmp_path, "phase1", kinds, progress=progress)
    artifacts = view_of(tmp_path).run.artifacts
    failed = list(watched_failures._failed(artifacts["judge_phase1"], artifacts["sample_problems"]))
    chosen = watched_failures.worst_first(failed, 5)
    assert [verdict.problem_id for verdict in chosen] == ["b", "f", "d", "e", "c"]


def test_failures_of_another_way_to_ask_are_their_text_alone(tmp_path: Path) -> None:
    write_problems(tmp_path, {"p": "3 blocks"})
    write_attempts(tmp_path, "untrained", {"p": GOAL}, completion="x" * 20_007, prompting="zero_shot")
    ((failure,),) = FailureShelf().failures(view_of(tmp_path).run).values()
    assert failure.attempt.steps == ()
    assert failure.attempt.completion == "x" * 20_000 + "\n[7 more characters]"


def test_find_rows_reads_them_from_whichever_row_group_they_lie_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plansmith.data.tables.ROWS_PER_GROUP", 2)
    rows = [PlanRow(name, "fd", "solved", (f"(go {name})",), None, 0.0, is_optimal=False) for name in "abcde"]
    artifact = write_artifact(tmp_path, "plans", {"rows": (PlanRow, rows)})
    assert find_rows(artifact, "problem_id", ["e", "a", "z"], "plan") == [{"plan": ["(go a)"]}, {"plan": ["(go e)"]}]


# --- its page


def test_page_shows_model_output_as_text_only(run: Path) -> None:
    write_attempts(run, "phase1", {"p1": GOAL}, completion=f"{BROKEN_CHAIN} {HOSTILE}")
    write_live(run, "trainer", HOSTILE, done=1, moved=time.time())
    with run_lock(run / "artifacts"):
        page = page_of(run)
        page.watch.folder.joinpath("run.json").write_text(json.dumps({"preset": HOSTILE, "config": {"name": HOSTILE}}))
        html = page.snapshot()
        page.parts()
    assert html.count("window.stolen") >= 4
    assert html.count("<script>") == html.count("</script>") == 1
    assert "<img" not in html
    assert "{{ 7 * 7 }}" in html


def test_page_of_a_running_run_says_what_each_process_does(run: Path) -> None:
    now = time.time()
    with run_lock(run / "artifacts"):
        write_live(run, "stage", "stage1_2", done=20, total=37, moved=now)
        (run / "stages.json").write_text(json.dumps({"stage1_2": {"key": "f" * 64, "iteration": 2}}))
        values = {"train/loss": 0.125, "train/tokens_per_s": 12345.6}
        write_live(
            run, "trainer", "training", done=50, total=200, unit="step", values=values, started=now - 25, moved=now
        )
        html = page_of(run).snapshot()
    assert "21 of 37: stage 1, iteration 2" in html
    assert "50 of 200 step · 2 step/s · 1 min 15 s left · loss 0.125 · tokens per s 12,346 · moved" in html


@pytest.mark.parametrize(("quiet_s", "is_stale"), [(60, False), (400, True)])
def test_page_of_a_run_in_which_nothing_moves_warns(run: Path, quiet_s: float, is_stale: bool) -> None:
    with run_lock(run / "artifacts"):
        then = time.time() - quiet_s
        os.utime(run / "artifacts" / LOCK_FILE, (then, then))
        write_live(run, "trainer", "phase 1", moved=then)
        assert ('class="stale"' in page_of(run).snapshot()) is is_stale


def test_figure_and_stage_words_are_for_people() -> None:
    assert [figure(value) for value in (0, 12345.6, 99.96, 0.00123, 7.0)] == ["0", "12,346", "100", "0.00123", "7"]


def test_words_of_a_stage_tell_its_iteration_apart(tmp_path: Path) -> None:
    iterations = {"stage1_2": 2, "roll_out_10": 10, "judge_iteration_3": 3, "phase1": 0, "try_untrained_zero_shot": 0}
    for name, iteration in iterations.items():
        write_artifact(tmp_path / "artifacts", name, {}, iteration=iteration)
    view = view_of(tmp_path)
    assert list(map(view.words, iterations)) == [
        "stage 1, iteration 2", "roll out, iteration 10", "judge iteration 3", "phase 1", "try untrained zero shot",
    ]  # fmt: skip
    assert view.words("stage1_9") == "stage 1 9"  # of which nobody has said that it is in the loop


# --- its server


def settled(site: Site, path: str = "/parts.json") -> dict[str, str]:
    """Return the digests of the parts once none is being made any more."""
    return until(lambda: _settled(site, path), "the figures were never made")


def _settled(site: Site, path: str) -> dict[str, str] | None:
    digests = {part["name"]: part["digest"] for part in json.loads(site.answer(path).body)["parts"]}
    return digests if "figures" in digests else None


def until(found: Callable[[], dict[str, str] | None], what: str) -> dict[str, str]:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        answer = found()
        if answer is not None:
            return answer
        time.sleep(0.05)
    raise AssertionError(what)


def test_site_gives_each_part_by_its_name(run: Path) -> None:
    site = Site(run, watch.report_so_far)
    assert settled(site).keys() == {"status", "figures", "failures judge_untrained", "stages"}
    answer = site.answer("/part/failures%20judge_untrained")
    assert answer.status is HTTPStatus.OK
    assert "(stack b a) needs (clear a)" in json.loads(answer.body)["html"]


def test_site_answers_not_modified_until_an_artifact_appears(run: Path) -> None:
    site = Site(run, watch.report_so_far)
    before = settled(site)
    etag = site.answer("/parts.json").etag
    again = site.answer("/parts.json", etag)
    assert (again.status, again.body) == (HTTPStatus.NOT_MODIFIED, b"")
    write_attempts(run, "phase1", dict.fromkeys(LEVELS))
    assert site.answer("/parts.json", etag).status is HTTPStatus.OK

    def changed() -> dict[str, str] | None:
        found = settled(site)
        return found if found["figures"] != before["figures"] else None

    after = until(changed, "the figures did not change")
    assert after["failures judge_untrained"] == before["failures judge_untrained"]
    assert "100%" in json.loads(site.answer("/part/figures").body)["html"]


@pytest.mark.parametrize(
    "path",
    ["/run.json", "/../run.json", "/part/../run.json", "/part/%2e%2e%2frun.json", "//etc/passwd", "/report", "/part/",
     "/artifacts/.lock", "/part/status%00"],
)  # fmt: skip
def test_site_knows_no_files(run: Path, path: str) -> None:
    assert Site(run, watch.report_so_far).answer(path).status is HTTPStatus.NOT_FOUND


def test_site_gives_the_report_once_there_is_one(run: Path) -> None:
    site = Site(run, watch.report_so_far)
    (run / "report").mkdir()
    (run / "report" / "index.html").write_text("<p>the report</p>")
    assert site.answer("/report").body == b"<p>the report</p>"
    assert 'href="report"' in json.loads(site.answer("/part/status").body)["html"]


def test_site_of_a_folder_of_runs_lists_them_with_a_page_each(run: Path) -> None:
    seed = run.parent / "ablation" / "seed0"
    write_problems(seed, {"p": "3 blocks"})
    write_record(seed.parent)
    assert list(run_folders(run.parent)) == ["ablation/seed0", "demo"]
    site = Site(run.parent, watch.report_so_far)
    listed = json.loads(site.answer("/part/runs").body)["html"]
    assert 'href="run/ablation/seed0/"' in listed
    assert 'href="run/demo/"' in listed
    page = site.answer("/run/ablation/seed0/").body.decode()
    assert '<a href="../../../">all runs</a>' in page
    assert "status" in _names(site, "/run/demo/parts.json")
    assert site.answer("/run/../demo/").status is HTTPStatus.NOT_FOUND
    (run.parent / "report").mkdir()
    (run.parent / "report" / "index.html").write_text("<p>all arms</p>")
    assert site.answer("/report").body == b"<p>all arms</p>"
    assert 'href="report"' in json.loads(site.answer("/part/runs").body)["html"]


def _names(site: Site, path: str) -> list[str]:
    return [part["name"] for part in json.loads(site.answer(path).body)["parts"]]


def test_list_of_runs_shows_one_that_begins_later(tmp_path: Path) -> None:
    page = RunsPage(tmp_path, watch.report_so_far)
    assert "No run here yet" in page.parts()[0].html
    write_record(tmp_path / "later")
    (name,) = page.pages()
    assert name == "later"
    assert page.pages()["later"] is page.pages()["later"]


def ask(port: int, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    return connection.getresponse()


def test_server_sends_pages_that_a_browser_takes_for_nothing_else(run: Path) -> None:
    with serving(run) as port:
        answer = ask(port, "/part/status")
        assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        parts = ask(port, "/parts.json")
        assert ask(port, "/run.json").status == 404
        again = ask(port, "/parts.json", If_None_Match=parts.headers["ETag"])
        assert again.status in (200, 304)  # figures may have been made between the two


@pytest.mark.parametrize(("name", "status"), [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:9", 200),
                                              ("evil.example", 421), ("evil.example:80", 421), ("[", 421)])  # fmt: skip
def test_server_of_this_machine_alone_answers_to_its_names_only(run: Path, name: str, status: int) -> None:
    with serving(run) as port:
        assert ask(port, "/parts.json", Host=name).status == status


def test_server_on_a_taken_port_is_bad_input(run: Path) -> None:
    with serving(run) as port, pytest.raises(BadInputError, match="cannot listen there"):
        server_of(Site(run, watch.report_so_far), "127.0.0.1", port)


# --- its command


def command(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    watch.add_parser(parser.add_subparsers())
    known = parser.parse_args(["watch", *arguments])
    return int(known.work(known))


@pytest.fixture
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the process of the tests as nice as it is."""
    monkeypatch.setattr("os.nice", lambda _: 0)


@pytest.mark.usefixtures("_unhurried")
def test_once_writes_one_file_with_everything_and_nothing_from_outside(run: Path, tmp_path: Path) -> None:
    (run / "report").mkdir()
    (run / "report" / "index.html").write_text("<p>the report</p>")
    target = tmp_path / "page.html"
    assert command(str(run), "--once", str(target)) == 0
    html = target.read_text()
    assert 'href="runs/demo/report/index.html"' in html
    assert "(stack b a) needs (clear a)" in html
    assert "<svg" in html
    assert "http://" not in html.replace('"http://www.w3.org/', "")
    assert "https://" not in html


@pytest.mark.usefixtures("_unhurried")
def test_once_of_several_runs_is_bad_input(run: Path, tmp_path: Path) -> None:
    write_record(run.parent / "other")
    with pytest.raises(BadInputError, match="--once writes the page of one run"):
        command(str(run.parent), "--once", str(tmp_path / "page.html"))


def test_watch_of_no_folder_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no such folder"):
        command(str(tmp_path / "none"))


def test_artifacts_of_a_view_are_opened_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watching = RunWatch(run)
    watching.view(0)
    monkeypatch.setattr(Artifact, "damage", lambda _: pytest.fail("checked again"))
    assert len(watching.view(1).run.artifacts) == 5

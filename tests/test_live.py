"""What a run says of itself while it goes on, and the watchdog that reads it."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipelines.run.ray_session import _BarOfActors
from plansmith import live, progress
from plansmith.errors import StalledError
from plansmith.live import LiveFile, LiveProgress, LiveWork, read_live, report, reporting_to
from plansmith.progress import progress_bar, say_behind_bar
from plansmith.watchdog import watchdog


def only(folder: Path) -> LiveWork:
    [work] = read_live(folder)
    return work


# --- files


def test_read_live_of_a_run_that_said_nothing_is_empty(tmp_path: Path) -> None:
    assert read_live(tmp_path) == []


def test_update_is_written_at_once_when_the_work_is_another(tmp_path: Path) -> None:
    file = LiveFile(tmp_path, "trainer")
    file.update("loading the model")
    assert (only(tmp_path).source, only(tmp_path).doing, only(tmp_path).total) == ("trainer", "loading the model", None)
    file.update("phase1", 0, 8, unit="step")
    work = only(tmp_path)
    assert (work.doing, work.done, work.total, work.unit) == ("phase1", 0, 8, "step")


def test_update_within_a_second_is_held_back_but_the_last_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(live, "time", SimpleNamespace(time=lambda: now[0]))
    file = LiveFile(tmp_path, "trainer")
    file.update("phase1", 0, 4)
    now[0] = 100.9
    file.update("phase1", 1, 4)
    assert only(tmp_path).done == 0
    now[0] = 101.0
    file.update("phase1", 2, 4)
    assert only(tmp_path).done == 2
    file.update("phase1", 4, 4)
    assert only(tmp_path).done == 4


def test_update_without_movement_keeps_the_time_of_the_last_one(tmp_path: Path) -> None:
    file = LiveFile(tmp_path, "run")
    file.update("waiting for 2 GPU")
    before = only(tmp_path)
    time.sleep(0.02)
    file.update("waiting for 2 GPU")
    assert only(tmp_path) == before


def test_update_keeps_the_latest_values_until_the_work_is_another(tmp_path: Path) -> None:
    file = LiveFile(tmp_path, "trainer")
    file.update("phase1", 1, 3, values={"train/loss": 0.5})
    file.update("phase1", 3, 3)
    assert only(tmp_path).values == {"train/loss": 0.5}
    file.update("saving")
    assert only(tmp_path).values == {}


def test_rate_is_units_a_second_since_the_work_began() -> None:
    assert LiveWork("run", "solving", done=30, started=100.0, moved=110.0).rate == 3.0
    assert LiveWork("run", "solving", done=0, started=100.0, moved=110.0).rate is None
    assert LiveWork("run", "solving", done=5, started=100.0, moved=100.0).rate is None


def test_rate_of_work_that_begins_again_is_that_of_its_last_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, now = LiveFile(tmp_path, "run"), [100.0]
    monkeypatch.setattr("plansmith.live.time.time", lambda: now[0])
    for second in range(1, 61):
        now[0] += 1
        file.update("writing", second % 50, 50, values={"x": 1.0})
    [work] = read_live(tmp_path)
    assert work.rate == pytest.approx(1.0, abs=0.2)
    assert work.values == {"x": 1.0}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"doing": "x"}', '{"source": "a", "doing": "x", "more": 1}'])
def test_read_live_leaves_out_a_file_that_cannot_be_read(tmp_path: Path, content: str) -> None:
    LiveFile(tmp_path, "run").update("solving")
    (tmp_path / live.LIVE_FOLDER / "broken.json").write_text(content, encoding="utf-8")
    assert [work.source for work in read_live(tmp_path)] == ["run"]


def test_read_live_has_the_latest_movement_first_and_no_half_written_file(tmp_path: Path) -> None:
    for number, source in enumerate(("a", "b", "c")):
        LiveFile(tmp_path, source).update("x")
        path = tmp_path / live.LIVE_FOLDER / f"{source}.json"
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "moved": [5, 9, 7][number]}))
    (tmp_path / live.LIVE_FOLDER / ".d.json.17").write_text('{"source": "d", "doing": "x"}', encoding="utf-8")
    assert [work.source for work in read_live(tmp_path)] == ["b", "c", "a"]


def test_update_that_cannot_be_written_is_said_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / live.LIVE_FOLDER).write_text("no folder", encoding="utf-8")
    file = LiveFile(tmp_path, "run")
    file.update("one")
    file.update("two")
    assert [record.message.startswith("what the run is doing cannot be shown") for record in caplog.records] == [True]


def test_bar_of_actors_counts_neither_itself_nor_what_was_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "WRITE_INTERVAL_S", 0.0)  # what the bar says is there when it looks again

    class Heard:
        def __init__(self) -> None:
            self.done: list[float] = []

        def update(self, doing: str, done: float, total: float | None, **_: object) -> None:
            self.done.append(done)

    heard = Heard()
    LiveFile(tmp_path, "policy-0").update("sampling", 40, 40, unit="rollout")  # of the call before
    LiveFile(tmp_path, live.STAGE).update("sampling", 7, 36, unit="stage")
    with (
        reporting_to(LiveFile(tmp_path, live.RUN), heard),
        _BarOfActors(tmp_path, "sampling", "rollout") as bar,
    ):
        assert heard.done == []  # no bar before the total is known
        for number, done in enumerate((3, 4)):
            LiveFile(tmp_path, f"policy-{number}").update("sampling", done, 20, unit="rollout")
        for _ in range(3):
            bar.look()
        assert heard.done[-1] == 7
        bar.fill()
    assert heard.done[-1] == 20


def test_bar_of_actors_tells_the_loss_or_how_fast_all_engines_write_and_the_longest_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "WRITE_INTERVAL_S", 0.0)
    with _BarOfActors(tmp_path, "sampling", "rollout") as bar:
        for number, longest in enumerate((300.0, 1200.0)):
            values = {"rollout/tokens_per_s": 50.0, "rollout/longest_tokens": longest}
            LiveFile(tmp_path, f"policy-{number}").update("sampling", 0, 20, unit="rollout", values=values)
        bar.look()
        assert bar._bar.n == 0 and bar._bar.postfix == "100 tokens/s, longest 1,200"
    with _BarOfActors(tmp_path, "training", "step") as bar:
        LiveFile(tmp_path, "trainer").update("training", 1, 9, unit="step", values={"train/loss": 0.25})
        bar.look()
        assert bar._bar.postfix == "loss 0.250"


def test_bar_that_stands_still_is_drawn_again_with_what_stands_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 0.0)
    outer, inner = io.StringIO(), io.StringIO()
    with progress_bar(2, "turns", file=outer):
        with progress_bar(2, "writing", file=inner):
            say_behind_bar("longest 10")
            say_behind_bar("longest 20")
        say_behind_bar("longest 30")
    say_behind_bar("nobody shows this")
    assert "longest 10" in inner.getvalue() and "longest 20" in inner.getvalue()
    assert "longest 20" not in outer.getvalue() and "longest 30" in outer.getvalue()


# --- a process


def test_report_without_a_listener_does_nothing(tmp_path: Path) -> None:
    report("solving", 1, 2)
    assert read_live(tmp_path) == []


def test_reporting_to_ends_with_its_block_even_after_an_error(tmp_path: Path) -> None:
    def work() -> None:
        with reporting_to(LiveFile(tmp_path, "run")):
            report("solving")
            raise KeyError

    with pytest.raises(KeyError):
        work()
    report("something else")
    assert only(tmp_path).doing == "solving"


def test_progress_bar_reports_its_movements(tmp_path: Path) -> None:
    with reporting_to(LiveFile(tmp_path, "run")):
        with progress_bar(2, "solving problems", unit="problem", file=io.StringIO()) as bar:
            assert (only(tmp_path).doing, only(tmp_path).done) == ("solving problems", 0)
            bar.update(2)
        assert (only(tmp_path).done, only(tmp_path).total, only(tmp_path).unit) == (2, 2, "problem")


def test_live_progress_adds_up_and_hands_its_values_on(tmp_path: Path) -> None:
    with reporting_to(LiveFile(tmp_path, "trainer")):
        progress = LiveProgress("phase1", 4, unit="step")
        for step in range(4):
            progress.advance(1, {"train/loss": 4.0 - step})
    assert (only(tmp_path).done, only(tmp_path).values) == (4, {"train/loss": 1.0})


# --- the watchdog


def test_watchdog_interrupts_a_wait_in_which_nothing_moves_and_names_the_stage(tmp_path: Path) -> None:
    LiveFile(tmp_path, "stage").update("phase1", 3, 9)
    LiveFile(tmp_path, "trainer").update("training", 5, 10)
    with pytest.raises(StalledError, match=r"nothing has moved for 0\.3 s") as caught, watchdog(tmp_path, limit_s=0.3):
        subprocess.run(["sleep", "60"], check=True)
    assert caught.value.where == "stage phase1"
    assert caught.value.got == "last: trainer: training (5 of 10)"


def test_watchdog_lets_slow_work_go_on_while_it_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("plansmith.watchdog.time", SimpleNamespace(monotonic=lambda: now[0]))
    file = LiveFile(tmp_path, "trainer")
    with watchdog(tmp_path, limit_s=1000.0):  # looks by itself every hundred seconds, so only when told to
        for step in range(4):
            file.update(f"step {step}")
            signal.raise_signal(signal.SIGALRM)
            now[0] += 900.0
            signal.raise_signal(signal.SIGALRM)
        now[0] += 900.0
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGALRM)


def test_watchdog_of_zero_seconds_is_off(tmp_path: Path) -> None:
    with watchdog(tmp_path, limit_s=0):
        time.sleep(0.2)


def test_watchdog_that_is_over_interrupts_nothing(tmp_path: Path) -> None:
    with watchdog(tmp_path, limit_s=0.1):
        pass
    time.sleep(0.3)


def test_watchdog_leaves_an_interrupt_by_the_user_alone(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), watchdog(tmp_path, limit_s=60):
        raise KeyboardInterrupt


def test_watchdog_outside_the_main_thread_says_that_there_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def work() -> None:
        with watchdog(tmp_path, limit_s=0.1):
            time.sleep(0.3)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "no watchdog" in caplog.text

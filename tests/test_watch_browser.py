"""The page of `plansmith watch` in a real browser: Chromium, without a window, on this machine."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright
from watched_runs import (
    BROKEN_CHAIN,
    HOSTILE,
    serving,
    write_attempts,
    write_live,
    write_problems,
    write_record,
    write_training,
)

from plansmith.commands.watch import report_so_far
from plansmith.data.storage import run_lock
from plansmith.judging.taxonomy import ErrorClass
from plansmith.watch.page import RunPage

PRECONDITION, GOAL = ErrorClass.PRECONDITION_VIOLATION, ErrorClass.GOAL_NOT_ACHIEVED
PATIENCE_MS = 180_000
"""How long the page may take on a machine with other work, until a test says what it waited for."""
OVERFLOW = "document.documentElement.scrollWidth - window.innerWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a headless Chromium that is installed here; one that does not start fails the tests."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("no Chromium or Chrome on the PATH: these pages are tried in no browser (CONTRIBUTING.md)")
    with sync_playwright() as playwright:
        # as root, as in a container, Chromium has no sandbox; what it opens here is ours
        options = {"args": ["--no-sandbox", "--disable-gpu"], "timeout": PATIENCE_MS}
        browser = playwright.chromium.launch(executable_path=path, **options)
        yield browser
        browser.close()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run whose untrained policy has been tried and wrote what wants to be a script."""
    folder = tmp_path / "demo"
    write_record(folder)
    write_problems(folder, {"p1": "3 blocks", "p2": "a level with a rather long name, of 4 blocks"})
    write_attempts(folder, "untrained", {"p1": PRECONDITION, "p2": GOAL}, completion=f"{BROKEN_CHAIN} {HOSTILE}")
    write_training(folder, "phase1", [3.0, 2.0, 1.5])
    write_live(folder, "stage", "try_phase1", done=4, total=37, moved=time.time())
    write_live(folder, "policy-0", f"trying {HOSTILE} " + "x" * 90, done=3, total=10, moved=time.time())
    return folder


def opened(browser: Any, address: str, width: int, complaints: list[str]) -> Any:
    """Return a page in a window of its own, whose errors are noted."""
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.set_default_timeout(PATIENCE_MS)
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    return page


def wait_for_value(page: Any, selector: str, value: str) -> None:
    """Wait for the value of a control; an expression to wait for would be run as text, which the page forbids."""
    expect(page.locator(selector)).to_have_value(value, timeout=PATIENCE_MS)


@pytest.mark.parametrize("width", [390, 1280])
def test_page_of_a_running_run_renews_itself_and_runs_nothing_a_model_wrote(
    browser: Any, run: Path, width: int
) -> None:
    complaints: list[str] = []
    with run_lock(run / "artifacts"), serving(run) as port:
        page = opened(browser, f"http://127.0.0.1:{port}/", width, complaints)
        page.get_by_text("untrained, 3 blocks", exact=True).wait_for()
        assert "5 of 37: try phase 1" in page.inner_text("#status")
        assert page.evaluate(OVERFLOW) <= 0

        first = page.locator("#attempt-1-judge_untrained")
        first.locator("> summary").wait_for()  # hidden, it would take no focus
        first.locator("> summary").focus()
        page.keyboard.press("Enter")
        page.locator("#attempt-1-judge_untrained[open]").wait_for()
        assert first.locator("li.first-wrong code").inner_text() == "(stack b a)"
        assert HOSTILE in first.locator("> details", has_text="Completion").text_content()
        assert page.evaluate(OVERFLOW) <= 0

        write_attempts(run, "phase1", {"p1": None, "p2": GOAL})
        page.get_by_text("phase 1, 3 blocks", exact=True).wait_for()
        assert "100%" in page.inner_text("body")
        assert page.locator("#attempt-1-judge_untrained").get_attribute("open") is not None
        wait_for_value(page, "select[data-key=policy]", "phase 1")
        assert page.locator("details.attempt:visible").count() == 1
        page.select_option("select[data-key=policy]", "untrained")
        page.select_option("select[data-key=level]", "3 blocks")
        assert page.inner_text("#n-shown") == "1 of 3 shown"

        assert page.evaluate("window.stolen") is None
        assert page.evaluate(OVERFLOW) <= 0
        assert complaints == []
        page.close()


def test_page_says_when_its_server_is_gone_and_keeps_what_it_shows(browser: Any, run: Path) -> None:
    with serving(run) as port:
        page = opened(browser, f"http://127.0.0.1:{port}/", 390, [])
        page.get_by_text("untrained, 3 blocks", exact=True).wait_for()
        assert page.locator("#lost").is_hidden()
        page.route("**/*", lambda route: route.abort())
        page.locator("#lost").wait_for(state="visible")
        assert page.get_by_text("untrained, 3 blocks", exact=True).is_visible()
        page.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_written_page_stands_alone(browser: Any, run: Path, tmp_path: Path, width: int) -> None:
    complaints: list[str] = []
    with run_lock(run / "artifacts"):
        (tmp_path / "page.html").write_text(RunPage(run, report_so_far).snapshot(), encoding="utf-8")
    asked: list[str] = []
    page = opened(browser, "about:blank", width, complaints)
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.locator("details.attempt:visible").count() == 2
    assert page.inner_text("#n-shown") == "2 of 2 shown"
    assert page.evaluate(OVERFLOW) <= 0
    assert page.evaluate("window.stolen") is None
    assert (complaints, asked) == ([], [(tmp_path / "page.html").as_uri()])
    page.close()

"""The workbench in a real browser: Chromium, without a window, on this machine; by keyboard, on two widths."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from modelled_task import modelled, work_on, workbench
from test_watch_browser import OVERFLOW, browser, opened  # noqa: F401

from plansmith.judging.interpretation import interpretation_of
from plansmith.modelling import folder as files
from plansmith.modelling.references import TASKS_FOLDER
from plansmith.workbench.bench import Bench
from plansmith.workbench.going_on import Work
from plansmith.workbench.meaning import Reference
from plansmith.workbench.pages import title_of

STACK = "4-actions/2/stack.md"
HOSTILE = "<img src=x onerror=\"window.stolen='yes'\"><script>window.stolen = 'yes'</script>"
WIDTHS = pytest.mark.parametrize("width", [390, 1280])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished task, which no test changes."""
    return modelled(tmp_path_factory.mktemp("made")).folder.path


@pytest.fixture
def work(made: Path, tmp_path: Path) -> Work:
    """Return the steps of a finished task in a folder of the test's own, whose feedback is a person's."""
    shutil.copytree(made, tmp_path / "task")
    return work_on(tmp_path / "task", feedback="person")


@pytest.fixture
def address(work: Work) -> Iterator[str]:
    """Return the address of its workbench, with the reference of the task."""
    home = TASKS_FOLDER / "blocksworld"
    with workbench(work, reference=Reference.read(home / "domain.pddl", home / "easy.pddl")) as address:
        yield address


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def tab_to(page: Any, selector: str, *, key: str = "Tab") -> None:
    """Move the focus on by the Tab key alone, or back from the end of the page, until it is where the selector says."""
    wanted = page.locator(selector).first
    for _ in range(120):
        if wanted.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press(key)
    raise AssertionError(f"no {key} leads to {selector}")


def assert_fits(page: Any) -> None:
    """Hold that nothing is wider than the page, on a telephone and on a screen."""
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate(OVERFLOW) <= 0, (page.url, width)


def accept_all(page: Any) -> list[str]:
    """Return what advice was asked on, after accepting each as it is, by keyboard, until there is a plan."""
    seen: list[str] = []
    while True:
        page.locator("#advice-title, ol.said li:has-text('a plan of')").last.wait_for()
        if page.locator("#advice-title").count() == 0:
            return seen
        seen.append(page.inner_text("#advice-title").removeprefix("Your advice on ").strip())
        before = page.get_attribute("body", "data-question")
        tab_to(page, "button[name=accept]", key="Shift+Tab")
        press(page, "Enter")
        page.locator(f"body:not([data-question='{before}'])").wait_for(state="attached")


@WIDTHS
def test_task_is_mended_renamed_undone_planned_and_its_meaning_confirmed_by_keyboard_alone(
    browser: Any, work: Work, address: str, width: int  # noqa: F811
) -> None:  # fmt: skip
    complaints: list[str] = []
    page = opened(browser, address, width, complaints)
    tab_to(page, "a[href*='2/stack']")
    press(page, "Enter")
    page.locator("#precondition").wait_for()
    tab_to(page, "#precondition")
    press(page, "Control+a")
    page.keyboard.type("(and (holding ?x) (clear ?nobody))")
    page.locator("#faults li strong", has_text="predicate_usage").wait_for()
    assert "?nobody" in page.locator("#pddl").text_content()
    assert page.evaluate(OVERFLOW) <= 0
    press(page, "Control+a")
    page.keyboard.type("(and (clear ?y) (holding ?x))")
    page.locator("#faults li.none").wait_for()
    press(page, "Control+s")
    page.locator(".badge.mended").wait_for()
    assert "(and (clear ?y) (holding ?x))" in work.folder.current(STACK)

    tab_to(page, "nav a[href='./']")
    press(page, "Enter")
    tab_to(page, "a[href*='2-hierarchy']")
    press(page, "Enter")
    for name in ("slab", "brick"):
        tab_to(page, "input[name=new]")
        page.keyboard.type(name)
        press(page, "Enter")
        page.locator("form[action=undo]", has_text=f"renamed the type block to {name}").wait_for()
        if name == "slab":
            tab_to(page, "form[action=undo] button")
            press(page, "Enter")
            page.locator("form[action=undo]", has_text="slab").wait_for(state="detached")
            assert "- block" in work.folder.current(files.HIERARCHY)
            assert "slab" not in work.folder.current(STACK)
            tab_to(page, "a[href*='2-hierarchy']")
            press(page, "Enter")

    tab_to(page, "form[action=go-on]:not(:has(select)) button")
    press(page, "Enter")
    page.locator("ol.said li", has_text="a plan of 4 steps").wait_for()
    assert "- brick" in work.folder.current(files.DOMAIN)
    assert "block" not in work.folder.current(files.PROBLEM)
    tab_to(page, "a[href='plan']")
    press(page, "Enter")
    page.get_by_text("Valid in the model as it stands").wait_for()
    assert page.locator("ol.plan li").count() == 4
    assert page.locator("ol.plan code.new").count() > 0
    assert page.evaluate(OVERFLOW) <= 0

    tab_to(page, "a[href='meaning']")
    press(page, "Enter")
    page.get_by_text("A search proposes this; nobody has confirmed it").wait_for()
    assert page.locator(".pair ol").count() == 2
    assert page.evaluate(OVERFLOW) <= 0
    tab_to(page, "button[name=confirm]")
    press(page, "Enter")
    page.get_by_text("Right: confirmed, and valid in the reference").wait_for()
    assert interpretation_of(work.folder.read(files.INTERPRETATION), where="").is_confirmed
    assert complaints == []
    page.close()


def test_advice_is_waited_for_on_the_page_and_given_by_keyboard_alone_until_there_is_a_plan(
    browser: Any, tmp_path: Path  # noqa: F811
) -> None:  # fmt: skip
    work = work_on(tmp_path / "task", feedback="person", faults={"construction/stack": ["predicate_usage", ""]})
    work.folder.write(files.TYPES, "- block")
    complaints: list[str] = []
    with workbench(work) as address:
        page = opened(browser, address, 390, complaints)
        tab_to(page, "select[name=after]")
        page.keyboard.type(title_of(files.TYPES))
        assert page.input_value("select[name=after]") == files.TYPES
        tab_to(page, "form[action=go-on]:has(select) button")
        press(page, "Enter")
        page.locator("#advice-title", has_text="hierarchy").wait_for()
        assert_fits(page)
        tab_to(page, "#advice")
        page.keyboard.type("Say what a block is.")
        press(page, "Tab", "Enter")
        seen = accept_all(page)
        assert seen[0] == "actions"
        assert seen[-1] == "task"
        assert "construction 1/stack" in seen
        assert "hierarchy: done, advised" in page.inner_text("ol.said")
        page.goto(f"{address}product?name=2-hierarchy.md")
        tab_to(page, "summary:has-text('How it came about')")
        press(page, "Enter")
        assert "Say what a block is." in page.inner_text("ol.calls")
        assert_fits(page)
        assert complaints == []
        page.close()


def test_of_two_tabs_the_later_save_gets_409_and_a_difference_on_a_narrow_page_as_on_a_wide_one(
    browser: Any, work: Work, address: str  # noqa: F811
) -> None:  # fmt: skip
    statuses: list[int] = []
    narrow, wide = (opened(browser, f"{address}product?name={STACK}", width, []) for width in (390, 1280))
    for page in (narrow, wide):
        page.on("response", lambda answer: statuses.append(answer.status) if answer.url.endswith("/save") else None)
    narrow.fill("#precondition", "(and (clear ?y) (holding ?x))")
    narrow.get_by_role("button", name="Save").click()
    narrow.locator(".badge.mended").wait_for()
    for late, before, typed in (
        (wide, "(and (clear ?y) (holding ?x))", "(and (holding ?x) (clear ?y) (not (on ?x ?y)))"),
        (narrow, "(and (holding ?x) (clear ?y) (not (on ?x ?y)))", "(and (holding ?x) (clear ?y) (not (on ?y ?x)))"),
    ):
        statuses.clear()
        late.fill("#precondition", typed)
        late.get_by_role("button", name="Save").click()
        late.locator("#conflict-title").wait_for()
        assert statuses == [409]
        assert before in late.inner_text(".difference .gone")
        assert typed in late.inner_text(".difference .new")
        assert late.evaluate(OVERFLOW) <= 0
        assert typed == late.input_value("#precondition")
        assert before in work.folder.current(STACK)
        late.get_by_role("button", name="Save mine instead").click()
        late.locator("#conflict-title").wait_for(state="detached")
        assert typed in work.folder.current(STACK)
    narrow.close()
    wide.close()


def test_closed_page_loses_no_draft_on_a_narrow_page_nor_on_a_wide_one(
    browser: Any, work: Work, address: str  # noqa: F811
) -> None:  # fmt: skip
    kept = "(and (holding ?x) (clear ?y))"
    for width in (390, 1280):
        page = opened(browser, f"{address}product?name={STACK}", width, [])
        assert page.input_value("#precondition") == kept
        kept = f"(and (holding ?x) (half a thought of {width}"
        page.locator("#precondition").focus()
        press(page, "Control+a")
        page.keyboard.type(kept)
        page.close(run_before_unload=True)  # at once, before the next check
    page = opened(browser, f"{address}product?name={STACK}", 390, [])
    page.get_by_text("This is your draft").wait_for()
    assert page.input_value("#precondition") == kept
    assert not Bench(work.folder, work.config).product(STACK).is_edited
    page.get_by_role("button", name="Discard the draft").click()
    page.get_by_text("This is your draft").wait_for(state="detached")
    assert page.input_value("#precondition") == "(and (holding ?x) (clear ?y))"
    page.close()


def test_hostile_model_text_runs_nothing_and_widens_no_page(browser: Any, work: Work, address: str) -> None:  # noqa: F811
    for name in (files.TEXT, files.TYPES, files.HIERARCHY, files.ACTIONS, files.PROBLEM_SKETCH, STACK):
        work.folder.write(
            name, f"{work.folder.read(name)}\n- evil: {HOSTILE}\n## Preconditions\n({HOSTILE})\n</textarea>"
        )
    work.folder.remove(files.PLAN)
    work.folder.write(files.PLAN_IN_WORDS, HOSTILE)
    page = opened(browser, address, 1280, [])
    for path in (
        "",
        "predicates",
        "plan",
        "meaning",
        *(f"product?name={name}" for name in Bench(work.folder, work.config).names()),
    ):
        page.goto(address + path)
        assert_fits(page)
        assert page.evaluate("window.stolen") is None
        assert page.locator("img").count() == 0
    page.goto(f"{address}product?name={STACK}&view=text")
    page.locator("#text").press_sequentially(f"({HOSTILE}")
    page.locator("#faults li strong").first.wait_for()
    page.get_by_text("kept as a draft").wait_for()
    assert_fits(page)
    assert page.evaluate("window.stolen") is None
    page.close()

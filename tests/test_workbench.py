"""The workbench without a browser: edits, conflicts, drafts, undo, renames, going on, and who is let in."""

from __future__ import annotations

import html
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from modelled_task import TOKEN, modelled, work_on, workbench

from plansmith.data.storage import run_lock
from plansmith.errors import BadInputError
from plansmith.modelling import folder as files
from plansmith.modelling.calls import CallLog
from plansmith.modelling.dialogue import Question
from plansmith.modelling.folder import TaskFolder
from plansmith.modelling.products import DialogueStep
from plansmith.modelling.references import TASKS_FOLDER
from plansmith.pddl.cases import judge_texts
from plansmith.workbench.bench import Bench, ConflictError, Draft, FaultyError
from plansmith.workbench.going_on import Progress, Work
from plansmith.workbench.meaning import Reference, keep_meaning, meaning_of
from plansmith.workbench.pages import checklist, fields_of, plan_view, text_of_form
from plansmith.workbench.renaming import renaming_in_pddl

STACK = "4-actions/2/stack.md"
BROKEN = "(and (holding ?x) (clear ?nobody))"
GOOD = "(and (holding ?x) (clear ?y))"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished task, which no test changes."""
    return modelled(tmp_path_factory.mktemp("made")).folder.path


@pytest.fixture
def work(made: Path, tmp_path: Path) -> Work:
    """Return the steps of a finished task in a folder of the test's own."""
    shutil.copytree(made, tmp_path / "task")
    return work_on(tmp_path / "task")


@pytest.fixture
def bench(work: Work) -> Bench:
    """Return its products."""
    return Bench(work.folder, work.config)


def n_calls(work: Work) -> int:
    return len(CallLog.open(work.folder.path / files.CALLS).calls)


def wait_for_question(progress: Progress) -> tuple[int, Question]:
    while (waiting := progress.desk.waiting) is None:
        assert progress.is_running, progress.failure
        time.sleep(0.01)
    return waiting


def mended(bench: Bench, name: str, before: str, after: str) -> None:
    product = bench.product(name)
    assert before in product.text
    bench.save(name, product.text.replace(before, after), product.version)


# --- edits


def test_products_stand_in_the_order_of_the_steps(bench: Bench) -> None:
    names = bench.names()
    assert names[:3] == [files.TYPES, files.HIERARCHY, files.ACTIONS]
    assert names[3:7] == [f"4-actions/1/{name}.md" for name in ("pick-up", "put-down", "stack", "unstack")]
    assert names[-3:] == [files.DOMAIN, files.PROBLEM_SKETCH, files.PROBLEM]
    assert not any(each.is_edited or each.is_older or bench.faults(each.name, each.text) for each in bench.products())


def test_save_is_an_edit_that_the_steps_read_and_what_was_made_stays(bench: Bench) -> None:
    made = bench.product(STACK).made
    mended(bench, STACK, GOOD, "(and (clear ?y) (holding ?x))")
    assert bench.folder.read(STACK) == made
    assert "(and (clear ?y) (holding ?x))" in bench.folder.current(STACK)
    assert bench.product(STACK).is_edited


def test_save_of_what_the_steps_made_is_no_edit(bench: Bench) -> None:
    mended(bench, STACK, GOOD, "(and (clear ?y) (holding ?x))")
    product = bench.product(STACK)
    bench.save(STACK, product.made, product.version)
    assert not bench.product(STACK).is_edited


def test_save_of_a_faulty_text_is_refused_with_the_line(bench: Bench) -> None:
    product = bench.product(STACK)
    with pytest.raises(FaultyError) as caught:
        bench.save(STACK, product.text.replace(GOOD, BROKEN), product.version)
    assert [(fault.check, fault.line) for fault in caught.value.faults] == [("predicate_usage", 7)]
    assert not bench.product(STACK).is_edited


@pytest.mark.parametrize(
    ("name", "before", "after", "check"),
    [
        (files.TYPES, "- block", "- and", "names"),
        (files.HIERARCHY, "block", "brick", "hierarchy"),
        (files.ACTIONS, "### stack", "### when", "names"),
        (files.PROBLEM_SKETCH, "- red - block", "- red - blok", "obj_type"),
        (files.DOMAIN, "(holding ?x)", "(holdin ?x)", "undefined-predicate"),
        (files.PROBLEM, "(:goal", "(:gaol", "unknown-section"),
    ],
    ids=["types", "hierarchy", "actions", "problem", "domain.pddl", "problem.pddl"],
)  # fmt: skip
def test_every_product_is_checked_by_its_step(bench: Bench, name: str, before: str, after: str, check: str) -> None:
    text = bench.product(name).text
    assert before in text
    assert check in [fault.check for fault in bench.faults(name, text.replace(before, after, 1))]


def test_of_two_saves_on_one_version_the_later_is_a_conflict_with_what_stands_there(bench: Bench) -> None:
    product = bench.product(STACK)
    bench.save(STACK, product.text.replace(GOOD, "(and (clear ?y) (holding ?x))"), product.version)
    with pytest.raises(ConflictError) as caught:
        bench.save(STACK, product.text.replace("?x - block", "?x - block: goes up"), product.version)
    assert caught.value.text == bench.product(STACK).text
    bench.save(STACK, product.text.replace("?x - block", "?x - block: goes up"), caught.value.version)
    assert "goes up" in bench.product(STACK).text


def test_undo_takes_changes_back_one_by_one_and_survives_a_restart(work: Work, bench: Bench) -> None:
    first = bench.product(STACK).text
    mended(bench, STACK, GOOD, "(and (clear ?y) (holding ?x))")
    second = bench.product(STACK).text
    mended(bench, STACK, "(clear ?y) (holding ?x)", "(holding ?x) (clear ?y) (clear ?y)")
    again = Bench(work.folder, work.config)
    assert again.undo() == f"mended {STACK}"
    assert again.product(STACK).text == second
    again.undo()
    assert again.product(STACK).text == first
    assert again.last_change() is None
    with pytest.raises(BadInputError, match="nothing to undo"):
        again.undo()


def test_undo_leaves_an_edit_alone_that_something_else_has_changed(bench: Bench) -> None:
    mended(bench, STACK, GOOD, "(and (clear ?y) (holding ?x))")
    bench.folder.write_edit(STACK, bench.product(STACK).text.replace("(clear ?y)", "(clear ?x)"))
    with pytest.raises(BadInputError, match="changed by something else"):
        bench.undo()
    assert "(clear ?x)" in bench.product(STACK).text


def test_draft_outlives_the_workbench_and_a_save_ends_it(work: Work, bench: Bench) -> None:
    product = bench.product(STACK)
    bench.keep_draft(STACK, product.text.replace(GOOD, BROKEN), product.version)
    draft = Bench(work.folder, work.config).draft(STACK)
    assert draft is not None
    assert BROKEN in draft.text
    assert not bench.product(STACK).is_edited
    mended(bench, STACK, GOOD, "(and (clear ?y) (holding ?x))")
    assert bench.draft(STACK) is None


def test_edit_of_something_before_makes_what_follows_older(bench: Bench) -> None:
    mended(bench, files.ACTIONS, "### stack", "### stack\nPuts one on another.")
    older = {each.name for each in bench.products() if each.is_older}
    assert older == set(bench.names()[3:])


def test_rename_makes_nothing_younger_that_was_older(bench: Bench) -> None:
    types = bench.product(files.TYPES)
    bench.save(files.TYPES, types.text + "- hand: takes blocks\n", types.version)
    older = {each.name for each in bench.products() if each.is_older}
    assert files.ACTIONS in older and STACK in older
    bench.rename("predicate", "clear", "free")
    assert older <= {each.name for each in bench.products() if each.is_older}


def test_draft_of_another_form_outlives_a_save_and_a_conflict(bench: Bench) -> None:
    product = bench.product(STACK)
    mine, other = (product.text.replace(GOOD, f"(and {GOOD} (clear ?{name}))") for name in "yx")
    bench.keep_draft(STACK, mine, product.version, form="mine")
    bench.save(STACK, other, product.version, form="other")
    assert bench.draft(STACK) == Draft(mine, product.version, "mine")
    bench.drop_draft(STACK)
    with pytest.raises(ConflictError) as caught:
        bench.save(STACK, mine, product.version, form="mine")
    assert bench.draft(STACK) == Draft(mine, product.version, "mine")
    bench.save(STACK, mine + "\n\n", caught.value.version, form="mine")
    assert bench.draft(STACK) is None


def test_save_that_changes_nothing_makes_nothing_older(bench: Bench) -> None:
    mended(bench, files.ACTIONS, "### stack", "### stack\nPuts one on another.")
    mended(bench, STACK, GOOD, "(and (clear ?y) (holding ?x))")
    assert not bench.product(STACK).is_older
    same = bench.product(files.ACTIONS)
    bench.save(files.ACTIONS, same.text, same.version)
    assert not bench.product(STACK).is_older
    assert bench.last_change() == f"mended {STACK}"


def test_change_that_breaks_the_plan_shows_at_once_and_nothing_is_written(bench: Bench) -> None:
    before = bench.folder.read(files.DOMAIN)
    view = plan_view(bench)
    assert view is not None
    assert view.is_valid
    mended(bench, STACK, GOOD, f"(and {GOOD} (clear ?x) (on ?x ?y))")
    view = plan_view(bench)
    assert view is not None
    assert view.verdict == "precondition_unsatisfied"
    assert bench.folder.read(files.DOMAIN) == before


def test_no_plan_of_a_model_that_has_changed_says_so(work: Work, bench: Bench) -> None:
    work.folder.remove(files.PLAN)
    work.folder.write(files.PLAN_IN_WORDS, "No plan found: proven")
    view = plan_view(bench)
    assert view is not None
    assert not view.is_before
    mended(bench, files.DOMAIN, "(:action stack", "; mine\n  (:action stack")
    view = plan_view(bench)
    assert view is not None
    assert view.is_before


def test_problem_is_checked_in_the_domain_as_it_is_now(bench: Bench) -> None:
    mended(bench, STACK, "## New predicates", "## New predicates\n- (light ?x - block): weighs little")
    mended(bench, STACK, GOOD, "(and (holding ?x) (clear ?y) (light ?x))")
    problem = bench.product(files.PROBLEM_SKETCH)
    bench.save(files.PROBLEM_SKETCH, problem.text.replace("(ontable ", "(light green)\n(ontable ", 1), problem.version)
    bench.rename("type", "block", "brick")
    bench.rename("predicate", "light", "slight")
    assert not [each.name for each in bench.products() if bench.faults(each.name, each.text)]
    assert "(slight green)" in bench.product(files.PROBLEM_SKETCH).text


def test_action_that_is_no_longer_named_is_no_product(bench: Bench) -> None:
    actions = bench.product(files.ACTIONS)
    before, _, after = actions.text.partition("### unstack")
    bench.save(files.ACTIONS, before, actions.version)
    assert after
    assert "4-actions/2/unstack.md" not in bench.names()
    assert STACK in bench.names()
    bench.undo()
    assert "4-actions/2/unstack.md" in bench.names()


# --- renaming


def test_rename_leaves_products_alone_that_do_not_name_it(bench: Bench) -> None:
    mended(bench, STACK, GOOD, f"; mine\n{GOOD}")
    assert "ontable" not in bench.product(STACK).text
    assert STACK not in bench.rename("predicate", "ontable", "onfloor")
    assert "; mine" in bench.product(STACK).text


def test_renamed_type_is_gone_from_every_product_and_the_plan_stays_valid(work: Work, bench: Bench) -> None:
    changed = bench.rename("type", "block", "brick")
    assert {files.TYPES, files.HIERARCHY, STACK, files.PROBLEM_SKETCH} <= set(changed)
    calls = n_calls(work)
    work.go_on(None, lambda _: "", lambda _: None)
    assert n_calls(work) == calls
    domain, problem = (work.folder.current(name) for name in (files.DOMAIN, files.PROBLEM))
    assert "block" not in domain + problem
    assert domain.count("- brick") >= 9
    assert judge_texts(domain, problem, work.folder.read(files.PLAN)).verdict.is_valid
    assert not any(bench.faults(each.name, each.text) for each in bench.products())
    bench.undo()
    assert not any(each.is_edited for each in bench.products())


def test_rename_keeps_mended_pddl_mended(work: Work, bench: Bench) -> None:
    mended(bench, files.DOMAIN, "(:action stack", "; mine: a block\n  (:action stack")
    bench.rename("type", "block", "brick")
    work.go_on(None, lambda _: "", lambda _: None)
    domain = work.folder.current(files.DOMAIN)
    assert "; mine: a block" in domain
    assert "- brick" in domain
    assert "- block" not in domain


def test_undo_of_a_rename_brings_mended_pddl_back_with_what_it_is_an_edit_of(work: Work, bench: Bench) -> None:
    mended(bench, files.DOMAIN, "(:action stack", "; mine: a block\n  (:action stack")
    before = bench.products()
    bench.rename("type", "block", "brick")
    work.go_on(None, lambda _: "", lambda _: None)
    bench.undo()
    assert bench.products() == before
    assert work.folder.current(files.DOMAIN) == bench.product(files.DOMAIN).text


def test_undo_of_a_rename_leaves_pddl_that_was_made_anew_since(bench: Bench) -> None:
    mended(bench, files.DOMAIN, "(:action stack", "; mine: a block\n  (:action stack")
    bench.rename("type", "block", "brick")
    anew = bench.product(files.DOMAIN).made.replace("stack", "pile")
    bench.folder.write(files.DOMAIN, anew)
    bench.undo()
    assert bench.product(files.DOMAIN).made == anew
    assert bench.product(files.DOMAIN).is_outdated
    assert "block" in bench.product(files.TYPES).text


def test_rename_that_stops_half_way_changes_nothing(bench: Bench) -> None:
    mended(bench, files.DOMAIN, "(:action stack", "; mine\n  (:action stack")
    mended(bench, STACK, GOOD, "(and (clear ?y) (holding ?x))")
    bench.folder.write(STACK, bench.product(STACK).made.replace(GOOD, "(holding ?x)"))
    assert "(ontable" not in bench.product(STACK).text
    before, undoable = bench.products(), bench.last_change()
    with pytest.raises(BadInputError, match="an edit of a product that has changed since"):
        bench.rename("predicate", "ontable", "onfloor")
    assert bench.products() == before
    assert bench.last_change() == undoable


class DyingFolder(TaskFolder):
    """A folder of a workbench that is killed on its way."""

    def write(self, name: str, text: str) -> None:
        """Write all but one."""
        if name.endswith(STACK):
            raise KeyboardInterrupt
        super().write(name, text)


def test_rename_that_is_killed_half_way_can_be_undone(bench: Bench) -> None:
    before = bench.products()
    with pytest.raises(KeyboardInterrupt):
        Bench(DyingFolder(bench.folder.path), bench.config).rename("type", "block", "brick")
    assert bench.products() != before
    bench.undo()
    assert bench.products() == before


def test_rename_keeps_mended_pddl_that_has_a_name_of_its_own(work: Work, bench: Bench) -> None:
    mended(bench, files.DOMAIN, "(define (domain ", "(define (domain my-")
    work.go_on(None, lambda _: "", lambda _: None)
    mended(bench, files.PROBLEM, "(:goal", "; mine\n  (:goal")
    bench.rename("type", "block", "brick")
    work.go_on(None, lambda _: "", lambda _: None)
    assert "(:domain my-" in work.folder.current(files.PROBLEM)
    assert not any(each.is_outdated for each in bench.products())


def test_renamed_predicate_is_another_one_in_formulas_and_declarations(work: Work, bench: Bench) -> None:
    bench.rename("predicate", "clear", "free")
    work.go_on(None, lambda _: "", lambda _: None)
    assert "(clear" not in work.folder.current(files.DOMAIN) + work.folder.current(files.PROBLEM)
    assert "(free ?x - block)" in work.folder.current(files.DOMAIN)
    assert work.folder.has(files.PLAN)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("block", "stack", "name of an action"), ("block", "red", "name of an object"), ("block", "on", "predicate"),
     ("block", "and", "cannot be the name"), ("bloc", "brick", "no such type"), ("object", "thing", "no such type")],
)  # fmt: skip
def test_rename_to_what_cannot_be_a_name_is_refused(bench: Bench, old: str, new: str, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        bench.rename("type", old, new)
    assert not any(each.is_edited for each in bench.products())


def test_rename_in_pddl_leaves_comments_predicates_variables_and_longer_names_alone() -> None:
    rename = renaming_in_pddl("type", "at", "place")
    assert rename("(at ?at - at) ; at home\n(forall (?x - (either at at-home)) (at ?x))") == (
        "(at ?at - place) ; at home\n(forall (?x - (either place at-home)) (at ?x))"
    )
    assert rename("(define (domain at) (:action at :parameters (?x - at)))") == (
        "(define (domain at) (:action at :parameters (?x - place)))"
    )
    assert renaming_in_pddl("predicate", "at", "is-at")("(and (at ?at) (at-home ?x - at) (at))") == (
        "(and (is-at ?at) (at-home ?x - at) (is-at))"
    )


# --- forms


def test_form_of_an_action_says_the_same_as_its_text(bench: Bench) -> None:
    product = bench.product(STACK)
    fields = fields_of(STACK, product.text, ["block"])
    form = {"precondition": fields["precondition"], "effect": fields["effect"]}
    for row, own in enumerate(fields["parameters"]):
        form |= {f"name-{row}": own.name, f"type-{row}": own.type, f"said-{row}": own.comment}
    assert text_of_form(STACK, form) == product.text.strip()


def test_checklist_of_every_step_is_the_one_that_a_model_is_given() -> None:
    steps = [step for step in DialogueStep if checklist(step)]
    assert steps == ["types", "hierarchy", "actions", "construction", "task"]
    assert all(len(checklist(step)) >= 5 for step in steps)
    assert all(question.endswith("?") for step in steps for question in checklist(step))


# --- going on


def test_going_on_from_an_action_asks_for_what_follows_and_nothing_twice(work: Work, bench: Bench) -> None:
    before = n_calls(work)
    work.go_on(STACK, lambda _: "", lambda _: None)
    assert n_calls(work) == before
    mended(bench, "4-actions/2/pick-up.md", "None", "- (heavy ?x - block): it takes two hands")
    work.go_on("4-actions/2/pick-up.md", lambda _: "", lambda _: None)
    asked = CallLog.open(work.folder.path / files.CALLS).calls[before:]
    assert [(call.step, call.subject) for call in asked] == [
        ("construction", f"2/{name}") for name in ("put-down", "stack", "unstack")
    ]


def test_going_on_to_another_product_than_was_mended_stops_and_says_so(work: Work, bench: Bench) -> None:
    mended(bench, STACK, GOOD, "(and (clear ?y) (holding ?x))")
    bench.folder.write(STACK, bench.product(STACK).made.replace(GOOD, "(holding ?x)"))
    assert bench.product(STACK).is_outdated
    progress = Progress(work)
    progress.start("planning", None)
    progress.wait()
    assert "an edit of a product that has changed since" in progress.failure
    product = bench.product(STACK)
    bench.save(STACK, product.text, product.version)
    assert not bench.product(STACK).is_outdated


def test_going_on_without_anybody_to_ask_says_so(work: Work) -> None:
    alone = Work(work.folder, work.config, work.planner, None)
    with pytest.raises(BadInputError, match="nobody is there to ask"):
        alone.go_on(files.TYPES, lambda _: "", lambda _: None)


def test_person_is_waited_for_and_a_stop_ends_the_waiting(tmp_path: Path) -> None:
    progress = Progress(work_on(tmp_path / "task", feedback="person"))
    progress.start("from the beginning", files.TEXT)
    number, question = wait_for_question(progress)
    assert (question.step, question.shown) == ("types", "- block")
    assert progress.desk.answer(number, "")
    assert not progress.desk.answer(number, "too late")
    assert wait_for_question(progress)[1].step == "hierarchy"
    progress.stop()
    progress.wait()
    assert progress.failure == "stopped"
    assert progress.work.folder.has(files.TYPES)
    assert not progress.work.folder.has(files.HIERARCHY)


# --- over HTTP


@pytest.fixture
def client(work: Work) -> Iterator[httpx.Client]:
    """Return a client of a workbench that is served."""
    with workbench(work) as address, httpx.Client(base_url=address, timeout=60) as client:
        yield client


def post(client: httpx.Client, path: str, **form: str) -> httpx.Response:
    return client.post(path, data=form)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {}, 404),
        (f"/{TOKEN}x/", {}, 404),
        (f"/{TOKEN}/", {"Host": "evil.example"}, 421),
        (f"/{TOKEN}/", {"Origin": "http://evil.example"}, 403),
        (f"/{TOKEN}/", {"Origin": "null"}, 403),
        (f"/{TOKEN}/", {}, 200),
        (f"/{TOKEN}/product?name=../text.md", {}, 404),
        (f"/{TOKEN}/product?name=calls.jsonl", {}, 404),
    ],
)  # fmt: skip
def test_request_is_answered_for_who_knows_the_token_here_and_no_other_site(
    client: httpx.Client, path: str, headers: dict[str, str], status: int
) -> None:
    answer = client.get(str(client.base_url.copy_with(path="/")).rstrip("/") + path, headers=headers)
    assert answer.status_code == status
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert ("red" in answer.text) == (status == 200 or "product" in path)


def test_save_over_http_of_two_tabs_gives_the_later_409_and_the_difference(client: httpx.Client, bench: Bench) -> None:
    product = bench.product(STACK)
    first = product.text.replace(GOOD, "(and (clear ?y) (holding ?x))").replace("\n", "\r\n")
    saved = post(client, "save", name=STACK, version=product.version, text=first)
    assert saved.status_code == 303
    second = product.text.replace("?x - block", "?x - block: goes up")
    later = post(client, "save", name=STACK, version=product.version, text=second)
    assert later.status_code == 409
    assert '<span class="gone">- (and (clear ?y) (holding ?x))' in later.text
    assert '<span class="new">+ - ?x - block: goes up' in later.text
    assert "goes up" in later.text.partition("<textarea")[2]
    assert "goes up" not in bench.product(STACK).text


def test_save_over_http_of_a_faulty_text_gives_422_and_keeps_what_was_typed(client: httpx.Client, bench: Bench) -> None:
    product = bench.product(STACK)
    answer = post(client, "save", name=STACK, version=product.version, text=product.text.replace(GOOD, BROKEN))
    assert answer.status_code == 422
    assert "predicate_usage" in answer.text
    assert BROKEN in answer.text.partition("<textarea")[2]


def test_check_over_http_tells_the_line_and_keeps_a_draft(client: httpx.Client, bench: Bench) -> None:
    product = bench.product(STACK)
    text = product.text.replace(GOOD, BROKEN)
    said = post(client, "check", name=STACK, version=product.version, text=text).json()
    assert [(each["line"], each["quoted"]) for each in said["faults"]] == [(7, BROKEN)]
    assert said["is_draft"]
    assert "(:action stack" in said["pddl"]
    page = client.get("product", params={"name": STACK}).text
    assert "your draft" in page
    assert html.escape(BROKEN) in page
    assert post(client, "discard", name=STACK).status_code == 303
    assert bench.draft(STACK) is None


def test_hostile_text_of_a_model_is_text_on_every_page(work: Work, bench: Bench, client: httpx.Client) -> None:
    hostile = '</textarea></pre><script>alert(1)</script><img src=x onerror="alert(2)">'
    for name in (files.TYPES, files.HIERARCHY, files.ACTIONS, files.PROBLEM_SKETCH, STACK):
        work.folder.write(name, f"{work.folder.read(name)}\n- evil: {hostile}\n## Preconditions\n{hostile}")
    work.folder.write(files.PLAN_IN_WORDS, hostile)
    work.folder.remove(files.PLAN)
    pages = ["", "predicates", "plan", *(f"product?name={name}" for name in bench.names())]
    pages += [f"product?name={STACK}&view=text"]
    shown = [client.get(page).text for page in pages]
    assert sum("&lt;script&gt;" in page for page in shown) >= 5
    assert not any("<script>" in page or "<img" in page for page in shown)


def test_nothing_is_changed_while_something_is_going_on(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "task")
    work = work_on(tmp_path / "task", feedback="person")
    progress = Progress(work)
    with workbench(work, progress) as address, httpx.Client(base_url=address, timeout=60) as client:
        assert post(client, "go-on", after=files.TYPES).status_code == 303
        wait_for_question(progress)
        product = Bench(work.folder, work.config).product(STACK)
        form = {"name": STACK, "version": product.version, "text": product.text.replace(GOOD, f"(and {GOOD})")}
        refused = post(client, "save", **form)
        assert refused.status_code == 409
        draft = Bench(work.folder, work.config).draft(STACK)
        assert draft is not None
        assert draft.text == form["text"]
        assert post(client, "interpret", text="{}").status_code == 409
        assert "going on" in refused.text
        assert "Questions to ask of it" in client.get("").text
        assert post(client, "advise", question="77", advice="x").status_code == 409
        assert post(client, "stop").status_code == 303
        progress.wait()
        assert post(client, "save", **form).status_code == 303


def test_what_cannot_be_used_is_said_and_no_error_of_the_program(work: Work, client: httpx.Client) -> None:
    assert post(client, "advise", question="\u00b2").status_code == 422
    assert post(client, "check", **{f"name-{row}": "x" for row in range(2001)}).status_code == 413
    work.folder.write(f"{files.EDITS}/{files.DOMAIN}", "(define (domain mine))")
    answer = client.get("")
    assert answer.status_code == 422
    assert "does not say what it is an edit of" in answer.text


def test_form_has_every_row_that_was_sent() -> None:
    rows = {f"predicate-{row}": f"(p{row})" for row in range(150)}
    assert "(p149)" in text_of_form(STACK, {**rows, "precondition": "()", "effect": "()"})


def test_bench_of_a_folder_without_a_task_says_what_it_is_looking_for(tmp_path: Path, work: Work) -> None:
    with pytest.raises(BadInputError, match="no task here"):
        Bench(TaskFolder(tmp_path), work.config)


# --- what the plan means


@pytest.fixture
def reference() -> Reference:
    """Return the reference of the task."""
    folder = TASKS_FOLDER / "blocksworld"
    return Reference.read(folder / "domain.pddl", folder / "easy.pddl")


def test_plan_in_other_words_is_right_once_a_person_confirms_what_it_means(
    work: Work, bench: Bench, reference: Reference
) -> None:
    work.folder.write(files.PLAN, "(take blue red)\n(put-down blue)\n(take red yellow)\n(stack red green)")
    view = meaning_of(work.folder, reference)
    assert view is not None
    assert view.steps == ("(unstack blue red)", "(put-down blue)", "(unstack red yellow)", "(stack red green)")
    assert ("take", ("(unstack #1 #2)",)) in view.actions
    assert not view.is_right
    keep_meaning(work.folder, reference, view.interpretation, is_confirmed=True)
    confirmed = meaning_of(work.folder, reference)
    assert confirmed is not None
    assert confirmed.is_right
    work.folder.write(files.PLAN, "(take blue red)\n(stack blue green)")
    other = meaning_of(work.folder, reference)
    assert other is not None
    assert not other.is_right
    work.folder.write(files.PLAN, "(lift blue red)\n(put-down blue)\n(lift red yellow)\n(stack red green)")
    renamed = meaning_of(work.folder, reference)
    assert renamed is not None
    assert not renamed.is_kept
    assert ("lift", ("(unstack #1 #2)",)) in renamed.actions


def test_interpretation_of_an_unknown_action_is_refused_and_none_is_kept(work: Work, reference: Reference) -> None:
    text = '{"actions": {"take": [[{"action": "steal", "arguments": [0]}]]}}'
    with pytest.raises(BadInputError, match="unknown action"):
        keep_meaning(work.folder, reference, text, is_confirmed=True)
    assert not work.folder.has(files.INTERPRETATION)


def test_meaning_over_http_is_confirmed_by_a_button(work: Work, reference: Reference) -> None:
    with workbench(work, reference=reference) as address, httpx.Client(base_url=address, timeout=60) as client:
        page = client.get("meaning").text
        assert "nobody has confirmed it" in page
        view = meaning_of(work.folder, reference)
        assert view is not None
        assert post(client, "interpret", text="{", confirm="1").status_code == 422
        assert post(client, "interpret", text=view.interpretation, confirm="1").status_code == 303
        assert "Right: confirmed" in client.get("meaning").text


# --- the command


def test_command_serves_its_folder_at_an_address_with_a_token_and_lets_no_second_one_in(work: Work) -> None:
    command = [sys.executable, "-m", "plansmith.cli", "nl2plan", "edit", str(work.folder.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        found = re.search(r"http://127\.0\.0\.1:\d+/\S{24,}/", process.stdout.readline())
        assert found
        try:
            page = httpx.get(found[0], timeout=60).text
            with pytest.raises(BadInputError, match="another run works on this folder"), run_lock(work.folder.path):
                pass
        finally:
            process.send_signal(signal.SIGINT)
            status = process.wait()
    assert status == 0
    assert "there is nobody to ask" in page

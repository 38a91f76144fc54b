"""What the pages show, and the pages: plain HTML that works without its script, every text in it escaped.

Not here: HTTP (`server`), and what a change does (`bench`).
"""

from __future__ import annotations

import difflib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files as resources
from typing import Any
from urllib.parse import quote

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from plansmith.errors import BadInputError
from plansmith.modelling import folder as files
from plansmith.modelling import writing
from plansmith.modelling.assembly import schema_text
from plansmith.modelling.calls import Call, CallLog
from plansmith.modelling.dialogue import QuestionKind
from plansmith.modelling.products import DialogueStep, Parameter, Predicate, Schema
from plansmith.modelling.reading import Fault, read_advice, read_schema, read_tree
from plansmith.pddl.cases import judge_texts
from plansmith.pddl.model import OBJECT
from plansmith.workbench.bench import Bench, Product
from plansmith.workbench.checking import action_of, step_of
from plansmith.workbench.going_on import Progress
from plansmith.workbench.meaning import meaning_of

BLANK_ROWS = 2
"""Empty rows of a form, to write further parameters or predicates into."""
FORM_BYTES = 9
MAX_STEPS_SHOWN = 500

TITLES = {
    files.TYPES: "1 Types",
    files.HIERARCHY: "2 Hierarchy",
    files.ACTIONS: "3 Actions in words",
    files.PROBLEM_SKETCH: "5 Problem",
    files.DOMAIN: "domain.pddl",
    files.PROBLEM: "problem.pddl",
}


def title_of(name: str) -> str:
    """Return what a product is called on the pages."""
    own = action_of(name)
    return f"4 {own.action}, pass {own.number}" if own else TITLES[name]


def address_of(name: str) -> str:
    """Return the address of a product's page."""
    return f"product?name={quote(name)}"


@cache
def environment() -> Environment:
    """Return the reader of the templates, which escapes every text put into them."""
    loader = ChoiceLoader([PackageLoader("plansmith.workbench"), PackageLoader("plansmith.report")])
    made = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip
    made.filters.update(title_of=title_of, address_of=address_of)
    return made


def rendered(template: str, **values: Any) -> str:
    """Return a page, the style sheet or the script."""
    return environment().get_template(template).render(**values)


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a difference; `kind` is same, gone, new or place."""

    kind: str
    text: str


_KINDS = {" ": "same", "-": "gone", "+": "new", "@": "place"}


def difference(before: str, after: str) -> list[DiffLine]:
    """Return in which lines two texts differ, with three lines around them."""
    lines = difflib.unified_diff(before.strip().split("\n"), after.strip().split("\n"), lineterm="")
    return [DiffLine(_KINDS[line[0]], line[1:] if line[0] != "@" else line) for line in lines
            if not line.startswith(("---", "+++"))]  # fmt: skip


@cache
def checklist(step: DialogueStep) -> tuple[str, ...]:
    """Return the questions that whoever criticises a step's product is asked (appendix D)."""
    path = resources("plansmith.modelling") / "templates" / "worked" / f"{step}_feedback.j2"
    if not path.is_file():
        return ()
    found = re.search(r"^Checklist:\n((?:\d+\. .*\n)+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return tuple(re.sub(r"^\d+\. ", "", line) for line in found[1].splitlines()) if found else ()


# --- the form of an action


def fields_of(name: str, text: str, types: Sequence[str]) -> dict[str, Any]:
    """Return the fields of the form of an action."""
    own = action_of(name)
    assert own is not None
    schema = read_schema(own.action, text)
    blank = [Parameter("", "")] * BLANK_ROWS
    return {
        "parameters": [*schema.parameters, *blank],
        "types": sorted({*types, *(each.type for each in schema.parameters if each.type)}),
        "precondition": schema.precondition,
        "effect": schema.effect,
        "predicates": [*schema.predicates, *[Predicate("", "")] * BLANK_ROWS],
        "pddl": schema_text(schema),
    }


def text_of_form(name: str, form: Mapping[str, str]) -> str:
    """Return the product that a form says: its text as it is, or an action put together of its fields."""
    own = action_of(name)
    if "text" in form or own is None:
        return form.get("text", "").replace("\r\n", "\n")
    value = {key: said.replace("\r\n", "\n") for key, said in form.items()}
    parameters = tuple(
        Parameter(_one_line(value[f"name-{row}"]), _one_line(value.get(f"type-{row}", "")),
                  _one_line(value.get(f"said-{row}", "")))
        for row in _rows(value, "name") if value[f"name-{row}"].strip()
    )  # fmt: skip
    predicates = tuple(
        Predicate("", _one_line(value[f"predicate-{row}"]), _one_line(value.get(f"meaning-{row}", "")))
        for row in _rows(value, "predicate") if value[f"predicate-{row}"].strip()
    )  # fmt: skip
    return writing.write_schema(
        Schema(own.action, parameters, value.get("precondition", ""), value.get("effect", ""), predicates)
    )


def _rows(form: Mapping[str, str], field: str) -> list[str]:
    """Return the numbers of the rows that a form has of a field, in its order."""
    return [found[1] for key in form if (found := re.fullmatch(rf"{field}-(\d+)", key))]


def _one_line(text: str) -> str:
    return " ".join(text.split())


# --- pages


def overview(bench: Bench, progress: Progress, *, error: str = "") -> str:
    """Return the first page: the text, every product, what came of it."""
    products = bench.products()
    n_faults = {each.name: len(bench.faults(each.name, each.text)) for each in products}
    rows = [(each, n_faults[each.name], bench.draft(each.name) is not None) for each in products]
    last_pass = max((each.action.number for each in products if each.action), default=0)
    values: dict[str, Any] = {"text": bench.text, "rows": rows, "error": error, "plan": plan_view(bench)}
    undoable = bench.last_change()
    return rendered("overview.html.j2", **values, undoable=undoable, last_pass=last_pass, **_going_on(progress))


def _going_on(progress: Progress) -> dict[str, Any]:
    waiting = progress.desk.waiting
    question = waiting[1] if waiting else None
    return {
        "progress": progress.state(),
        "can_ask": progress.work.speaking is not None,
        "asked_by_person": progress.work.config.feedback == "person",
        "question": question,
        "question_number": waiting[0] if waiting else 0,
        "questions": checklist(question.step) if question else (),
    }


@dataclass(frozen=True)
class Editing:
    """What is in the editor of a product's page.

    Attributes:
        text: in it.
        version: of the product that it is a change of.
        faults: of it.
        notice: why it is not what stands there.
        conflict: what stands there instead, after somebody else saved.
        form: what tells this editor from that of another tab.
    """

    text: str
    version: str
    faults: tuple[Fault, ...]
    notice: str = ""
    conflict: str | None = None
    form: str = field(default_factory=lambda: secrets.token_hex(FORM_BYTES))


def editing_of(bench: Bench, product: Product) -> Editing:
    """Return what a page begins with: the draft where there is one, else the product."""
    draft = bench.draft(product.name)
    if draft is None:
        return Editing(product.text, product.version, bench.faults(product.name, product.text))
    notice = "This is your draft, which is not saved."
    if draft.version != product.version:
        notice += " The product was changed since you began it."
    return Editing(draft.text, draft.version, bench.faults(product.name, draft.text), notice, form=draft.form)


def product_page(
    bench: Bench, progress: Progress, product: Product, editing: Editing, *, as_text: bool = False, error: str = ""
) -> str:
    """Return the page of one product."""
    names, own = bench.names(), product.action
    position, step = names.index(product.name), step_of(product.name)
    types = _types(bench)
    values: dict[str, Any] = {
        "product": product,
        "editing": editing,
        "lines": editing.text.split("\n"),
        "text": bench.text,
        "error": error,
        "previous": names[position - 1] if position else None,
        "next": names[position + 1] if position + 1 < len(names) else None,
        "as_text": as_text,
        "fields": fields_of(product.name, editing.text, types) if own and not as_text else None,
        "difference": difference(product.made, product.text),
        "conflict": None if editing.conflict is None else difference(editing.conflict, editing.text),
        "checklist": checklist(step) if step else (),
        "calls": _calls(bench, product.name),
        "tree": _tree(product) if product.name == files.HIERARCHY else [],
        "types": [name for name in types if name != OBJECT],
    }
    return rendered("product.html.j2", **values, **_going_on(progress))


def _types(bench: Bench) -> list[str]:
    if not bench.folder.has(files.HIERARCHY):
        return []
    return sorted(read_tree(bench.product(files.HIERARCHY).text)[0].names)


def _tree(product: Product) -> list[tuple[int, str, str]]:
    tree = read_tree(product.text)[0]
    return [(depth, node.name, node.comment) for node, depth in tree.depths()]


@dataclass(frozen=True, slots=True)
class ShownCall:
    """One question about a product, and its answer."""

    kind: str
    model: str
    checks: str
    said: str
    answer: str
    advice: str


def _calls(bench: Bench, name: str) -> list[ShownCall]:
    """Return what was asked about a product, the first question first."""
    own, step = action_of(name), step_of(name)
    if step is None or not bench.folder.has(files.CALLS):
        return []
    subject = f"{own.number}/{own.action}" if own else ""
    calls = CallLog.open(bench.folder.path / files.CALLS).calls
    return [_shown_call(call) for call in calls if call.step == step and call.subject == subject]


def _shown_call(call: Call) -> ShownCall:
    advice = read_advice(call.answer) or "" if call.kind == QuestionKind.FEEDBACK else ""
    return ShownCall(call.kind, call.model, ", ".join(call.checks), call.messages[-1][1], call.answer, advice)


def predicates_page(bench: Bench, progress: Progress, *, error: str = "") -> str:
    """Return the page of the predicates: where each is declared, and which actions name it."""
    rows: dict[str, dict[str, Any]] = {}
    actions = [each for each in bench.products() if each.action]
    for each in actions:
        assert each.action is not None
        for own in read_schema(each.action.action, each.text).predicates:
            rows.setdefault(own.declaration, {"own": own, "declared": each.name, "used": []})
    for row in rows.values():
        head = re.compile(rf"\(\s*{re.escape(row['own'].name)}(?=[\s()])", re.IGNORECASE)
        row["used"] = [each.name for each in actions if head.search(_formulas(each))]
    return rendered(
        "predicates.html.j2", rows=list(rows.values()), text=bench.text, error=error, **_going_on(progress)
    )  # fmt: skip


def _formulas(product: Product) -> str:
    assert product.action is not None
    schema = read_schema(product.action.action, product.text)
    return f"{schema.precondition}\n{schema.effect}"


# --- the plan


@dataclass(frozen=True, slots=True)
class PlanStepView:
    """A step of the plan with what it changes."""

    step: str
    becomes_true: tuple[str, ...]
    becomes_false: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanView:
    """What came of planning; `verdict` is the validator's word on the plan in the model as it stands now.

    Without a plan `is_before` says whether the model was changed since.
    """

    said: str
    verdict: str
    reason: str
    steps: tuple[PlanStepView, ...]
    n_steps: int
    initial: tuple[str, ...]
    is_before: bool = False

    @property
    def is_valid(self) -> bool:
        """Return whether there is a plan, and it fits the model as it stands."""
        return self.verdict == "valid"


def plan_view(bench: Bench) -> PlanView | None:
    """Return the plan step by step; None where nothing was planned yet."""
    folder = bench.folder
    said = folder.read(files.PLAN_IN_WORDS).strip() if folder.has(files.PLAN_IN_WORDS) else ""
    if not folder.has(files.PLAN):
        return PlanView(said, "", "", (), 0, (), bench.is_planned_before()) if said else None
    try:
        model = bench.as_it_stands()
        domain, problem = model.current(files.DOMAIN), model.current(files.PROBLEM)
    except BadInputError as error:
        return PlanView(said, "bad_input", str(error), (), 0, ())
    judged = judge_texts(domain, problem, folder.read(files.PLAN))
    verdict, task = judged.verdict, judged.task
    if task is None:
        return PlanView(said, verdict.verdict.value, verdict.reason, (), 0, ())
    states = verdict.states[: MAX_STEPS_SHOWN + 1]
    steps = tuple(
        PlanStepView(str(step), _atoms(task, after & ~before), _atoms(task, before & ~after))
        for step, before, after in zip(verdict.plan, states, states[1:], strict=False)
    )
    initial = _atoms(task, states[0]) if states else ()
    return PlanView(said, verdict.verdict.value, verdict.reason, steps, len(verdict.plan), initial)


def _atoms(task: Any, state: int) -> tuple[str, ...]:
    return tuple(map(str, task.atoms_of(state)))


def meaning_page(bench: Bench, progress: Progress, *, typed: str | None = None, error: str = "") -> str:
    """Return the page of what the plan means in the reference."""
    view = None if bench.reference is None else meaning_of(bench.folder, bench.reference)
    return rendered(
        "meaning.html.j2", view=view, typed=typed, text=bench.text, error=error, **_going_on(progress)
    )  # fmt: skip


def plan_page(bench: Bench, progress: Progress) -> str:
    """Return the page of the plan."""
    return rendered("plan.html.j2", plan=plan_view(bench), text=bench.text, error="", **_going_on(progress))

"""Reading what a model answers: headings, lists and PDDL wherever they stand, and the line on which each stands.

Fences, bullets, tabs, bold type, thinking, and headings that nobody asked for are read past. An answer is never bad
input: what cannot be read is a `Fault`, which goes back to who wrote it. Not here: whether what was read makes sense
(`checks`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plansmith.modelling.products import (
    ActionSketch,
    Parameter,
    Predicate,
    ProblemSketch,
    Schema,
    TypeNode,
    TypeSketch,
    TypeTree,
)
from plansmith.pddl.model import OBJECT
from plansmith.text.loose_plans import without_thinking

MAX_LINES = 5000
"""Lines of an answer that are looked at."""
COMMENT = ";"
"""What a line that is read past begins with, in PDDL and around it."""
MAX_PLAIN_WORDS = 3
"""Words of a heading that is only a line with a colon; more of them are a sentence."""
MAX_NAME_WORDS = 4
"""Words of a name; more of them are a sentence."""
HEADED = "###"
"""What a line begins with that names an action as it is asked for."""
NOT_ACTIONS = frozenset({"example", "examples", "description", "requires", "effect", "effects", "note"})
"""What stands in an action's place in a list and is said of one."""

_HEADING = re.compile(r"\s{0,3}(?:#{1,6}\s*(?P<hash>[^#].*)|\*\*(?P<bold>[^*]+)\*\*:?|(?P<plain>[A-Za-z ]{3,40}):)\s*")
_FENCE = re.compile(r"\s*(?:```|~~~|\"\"\")\s*\w*\s*")
_BULLET = re.compile(r"^(?P<indent>[ \t]*)(?:[-*+•]|\d+[.)])\s+(?P<text>.*)$")
_BEGINS = re.compile(r"\s*(?:[-*+•(]|\d+[.)])")
_NAMED = re.compile(
    r"^[*`_\"']*(?P<name>[^\s:–—*`\"'().][^:–—*`\"()]{0,80}?)[*`_\"']*\s*(?P<remark>\([^()]*\))?[*`_\"']*\s*"  # noqa: RUF001
    r"(?P<separator>[:–—]|\s-\s|$)\s*(?P<rest>.*)$"  # noqa: RUF001
)
_PLAIN_NAME = re.compile(r"[A-Za-z][\w -]*")
_ACTION = re.compile(
    r"(?P<marker>\s{0,3}#{2,6}|\s*(?:[-+*•]|\d+[.)])(?=\s)|)\s*(?:\d+[.)]\s*)?"
    r"(?P<dress>[*`]*)(?P<name>[^\s:*`()#][^:*`()#]{0,80}?)\s*(?P<remark>\([^()]*\))?"
    r"(?P<end>[*`]+:?|\s*:[*`]*|\s[-–—]\s|\s*$)\s*(?P<rest>.*)"  # noqa: RUF001
)
_DECLARED = re.compile(
    r"^`?(?P<name>\??[\w-]+)`?\s+-\s+(?P<type>\(either[^)]*\)|[\w-]+)`?\s*(?:[:;,-]\s*(?P<rest>.*))?$"
)
_UNTYPED = re.compile(r"^`?(?P<name>\??[\w-]+)`?\s*(?:[:;]\s*(?P<rest>.*))?$")
_KEYWORD = re.compile(r"^:(?:precondition|effect|init|goal)s?\s+(?=\()", re.IGNORECASE)
_DEFINITION = re.compile(r"\(\s*define\s*\(\s*(?P<what>domain|problem)\b", re.IGNORECASE)
_EXAMPLE = re.compile(r"\bexamples?:\s*", re.IGNORECASE)
_NOTHING = re.compile(r"\W*(?:no|none|nothing)\b[^\n]{0,80}\W*", re.IGNORECASE)
_ACCEPTING = (
    r"(?:further|more|other|additional|else|major|real|specific|obvious|i|it|this|the|all|is|are|was|were|be|ha(?:s|ve)|"
    r"see|seems?|to|in|on|at|for|from|with|here|time|need(?:s|ed)?|necessary|required|should|must|found|ma[dk]e|"
    r"to (?:add|remove|be (?:added|removed|done))|feedback|advice|comments?|concerns?|objections?|"
    r"(?:chang|correct|modif|improv|revis|edit|adjust|fix|mend|suggest)\w*|issues?|problems?|errors?|faults?|flaws?|"
    r"mistakes?|missing|wrong|actions?|types?|hierarchy|solution|answer|model)"
)
"""Words that are said of an answer with which nothing is wrong."""
_YET = (
    r"(?:but|however|except|though|although|yet|not|never|only|must|should|needs?|wrong|"
    r"add|remove|delete|rename|replace|split|change|lacks?|miss(?:es|ing)|forg[eo]ts?)"
)
"""Words by which something is to be changed after all."""
_ACCEPTED = re.compile(
    rf"\W*(?:(?:none|nothing|no(?= |\W*$))(?: {_ACCEPTING})*(?= (?:as|because|since)\b|[^\w ]|$)|"
    rf"no\b(?=[^\n(]*\b(?:fine|good|correct|right|ok|okay|complete|well)\b))(?!.*\b{_YET}\b)[^\n(]{{0,80}}\W*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with an answer.

    Attributes:
        check: which check found it; of the paper's where it has one.
        message: what is wrong, and how to mend it.
        line: of the answer, from 1; 0 where no line says it.
    """

    check: str
    message: str
    line: int = 0

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an answer, by its number from 1."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """What stands below a heading, fences left out; `has_fences` says whether there were any."""

    title: str
    lines: tuple[Line, ...]
    fenced: tuple[Line, ...] = ()

    @property
    def body(self) -> tuple[Line, ...]:
        """Return the lines in fences, where there are any, else all."""
        return self.fenced or self.lines


@dataclass(frozen=True, slots=True)
class Fragment:
    """PDDL of an answer with everything else of its lines left out; the first line has a number."""

    text: str
    line: int

    @property
    def is_empty(self) -> bool:
        """Return whether no PDDL is there."""
        return not self.text.strip()


def sections_of(answer: str, titles: Sequence[str]) -> tuple[str, dict[str, list[Section]]]:
    """Return what stands before the first of the wanted headings, and the sections under each of them.

    A heading is one of those wanted where it holds the wanted word; any other ends what stands above
    it, unless it is deeper. Of several under one, those with the whole heading come first: the known predicates may
    stand again before the new ones.
    """
    head = list[str]()
    current: list[Line] | None = None
    found: dict[str, list[tuple[bool, list[Line]]]] = {title: [] for title in titles}
    fenced: dict[int, list[Line]] = {}
    is_fenced, level_of_current = False, 0
    for number, text in _numbered(answer):
        if _is_comment(text):
            continue
        if _is_fence(text):
            is_fenced = not is_fenced
            continue
        title = None if is_fenced else _title(text, titles)
        level = 0 if is_fenced else len(text.lstrip()) - len(text.lstrip().lstrip("#"))
        if title is not None:
            current, level_of_current = [], level
            found[title].append((not _n_held(title, text.lower()), current))
            rest = text.partition(":")[2].strip()
            if rest and not text.lstrip().startswith("#"):
                current.append(Line(number, rest))
        elif current is None:
            head.append(text)
        elif level and level <= level_of_current:
            current = None
        else:
            current.append(Line(number, text))
            if is_fenced:
                fenced.setdefault(id(current), []).append(Line(number, text))
    return "\n".join(head), {
        title: [
            Section(title, tuple(lines), tuple(fenced.get(id(lines), ())))
            for _, lines in sorted(group, key=lambda one: one[0])
        ]
        for title, group in found.items()
    }


def _title(text: str, titles: Sequence[str]) -> str | None:
    """Return which of the wanted headings a line is; of several that it holds, one that it holds in full."""
    heading = _HEADING.fullmatch(_spaced(text).rstrip("# "))
    said = next((part for part in heading.groups() if part), "").lower() if heading else ""
    if not said or len(said) > 60 or (heading and heading["plain"] and len(said.split()) > MAX_PLAIN_WORDS):
        return None
    held = [title for title in titles if title in said]
    return max(held, key=lambda title: _n_held(title, said)) if held else None


def _n_held(title: str, said: str) -> int:
    """Return how many characters the whole heading of a title has, 0 where a line does not hold it."""
    heading = HEADINGS.get(title, title).lower()
    return len(heading) if heading in said else 0


def _spaced(text: str) -> str:
    """Return a line with one blank for each run of them inside it: no pattern here may try out long ones."""
    body = text.lstrip()
    return text[: len(text) - len(body)] + " ".join(body.split())


def _numbered(answer: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of an answer without its thinking, each with its number in the answer."""
    told = without_thinking(answer, has_lines=True) or ""
    left = told.lstrip("\n")
    return enumerate(left.splitlines()[:MAX_LINES], 1 + len(told) - len(left))


def plain_lines(answer: str) -> list[Line]:
    """Return the lines of an answer outside of thinking, fences and comments left out."""
    return [Line(number, text) for number, text in _numbered(answer) if not _is_fence(text) and not _is_comment(text)]


def _is_fence(text: str) -> bool:
    return _FENCE.fullmatch(_spaced(text)) is not None


def _is_comment(text: str) -> bool:
    return text.lstrip().startswith(COMMENT)


def legal_name(text: str) -> str:
    """Return a name as PDDL has it: lower case, a dash for a blank and for what no name holds."""
    return re.sub(r"[^\w-]+", "-", text.strip().lower()).strip("-")


def _name_faults(said: str, line: Line) -> Iterator[Fault]:
    """Yield a fault for a name with what no name holds; a blank is read past."""
    if re.search(r"[^\w\s-]", said):
        message = f"'{said}' cannot be a name; use letters, digits, '-' and '_', such as '{legal_name(said)}'"
        yield Fault("names", message, line.number)


# --- steps 1 to 3


def _listed(lines: Sequence[Line]) -> Iterator[tuple[Line, int, str, str]]:
    """Yield the items of a list: its line, its indentation, its name as it is written, and what is said of it."""
    for line in lines:
        bullet = _BULLET.match(_spaced(line.text.expandtabs(4)))
        named = _NAMED.match(bullet["text"]) if bullet else None
        if bullet and named and _is_item(named):
            yield line, len(bullet["indent"]), named["name"], _said_of(named)


def _is_item(named: re.Match[str]) -> bool:
    """Return whether what a bullet begins with is a name, which may be none of PDDL, and not prose."""
    is_marked, n_words = named["separator"] or _PLAIN_NAME.fullmatch(named["name"]), len(named["name"].split())
    is_word = n_words == 1 and not named["name"].endswith((".", "!", "?"))
    return bool(legal_name(named["name"])) and (n_words <= MAX_NAME_WORDS if is_marked else is_word)


def _said_of(named: re.Match[str]) -> str:
    """Return what is said of a name: a remark in brackets, and what follows."""
    return f"{named['remark'] or ''} {named['rest']}".strip()


def read_types(answer: str) -> tuple[tuple[TypeSketch, ...], tuple[Fault, ...]]:
    """Return the types of a list, ``- truck: what it is``, each once; `object` is no type of anybody's."""
    found: dict[str, TypeSketch] = {}
    faults: list[Fault] = []
    _, sections = sections_of(answer, ("types",))
    lines = sections["types"][-1].body if sections["types"] else plain_lines(answer)
    for line, _, said, comment in _listed(lines):
        faults += _name_faults(said, line)
        if (name := legal_name(said)) != OBJECT:
            found.setdefault(name, TypeSketch(name, comment))
    if not found:
        faults = [Fault("header_inclusion", "no types found; list them below '## Types', as '- name: what it is'")]
    return tuple(found.values()), tuple(faults)


def read_tree(answer: str) -> tuple[TypeTree, tuple[Fault, ...]]:
    """Return the tree that the indentation of a list shows; what stands twice stays at its first place."""
    nodes: list[TypeNode] = []
    faults: list[Fault] = []
    above: list[tuple[int, str]] = []
    _, sections = sections_of(answer, ("hierarchy", "types"))
    chosen = [*sections["hierarchy"], *sections["types"]]
    known = {OBJECT}
    for line, indent, said, comment in _listed(chosen[-1].body if chosen else plain_lines(answer)):
        faults += _name_faults(said, line)
        name = legal_name(said)
        while above and above[-1][0] >= indent:
            above.pop()
        parent = above[-1][1] if above else OBJECT
        above.append((indent, name))
        if name in known:
            if name != OBJECT:
                faults.append(Fault("hierarchy", f"type '{name}' stands twice; give it one parent", line.number))
            continue
        known.add(name)
        nodes.append(TypeNode(name, parent, comment))
    if not nodes:
        faults = [Fault("header_inclusion", "no types found; list them below '## Hierarchy', children indented")]
    return TypeTree(tuple(nodes)), tuple(faults)


def read_actions(answer: str) -> tuple[tuple[ActionSketch, ...], tuple[Fault, ...]]:
    """Return the actions: ``### name`` and lines below it, or ``- name: description``; examples after ``Example:``."""
    found: dict[str, list[str]] = {}
    faults: list[Fault] = []
    current: list[str] | None = None
    lines = plain_lines(answer)
    begun = [_ACTION.fullmatch(_spaced(line.text)) for line in lines]
    marker = next((_marker(named) for named in begun if named and _is_action(named)), HEADED)
    for line, named in zip(lines, begun, strict=True):
        if named and (_is_action(named) or _is_like_actions(named, marker)):
            faults += _name_faults(named["name"], line)
            current = found.setdefault(legal_name(named["name"]), [])
            current += filter(None, [_said_of(named)])
        elif line.text.lstrip().startswith("#"):
            current = None
        elif current is not None and line.text.strip():
            current.append(line.text.strip())
    if not found:
        faults = [Fault("header_inclusion", "no actions found; write each as '### name', then what it does, needs "
                        "and changes, then 'Example: ...'")]  # fmt: skip
    return tuple(_sketch(name, " ".join(lines)) for name, lines in found.items()), tuple(faults)


def _is_action(named: re.Match[str]) -> bool:
    """Return whether a line begins an action wherever it stands: with one word, as a heading, bold or with a colon."""
    if not re.fullmatch(r"[A-Za-z][\w-]*", named["name"]) or named["remark"] or _is_about_actions(named):
        return False
    if "#" in named["marker"]:
        return not named["rest"]
    return named["dress"] in {"**", "`"} or bool(named["marker"] and not named["dress"] and ":" in named["end"])


def _is_like_actions(named: re.Match[str], marker: str) -> bool:
    """Return whether a line that is marked as those of actions begins one, whatever its name."""
    is_name = legal_name(named["name"]) and len(named["name"].split()) <= MAX_NAME_WORDS
    is_marked = "#" in marker or named["dress"] or named["end"].strip()
    return bool(is_name and is_marked) and _marker(named) == marker and not _is_about_actions(named)


def _is_about_actions(named: re.Match[str]) -> bool:
    """Return whether what stands in an action's place names a part of one, or all of them."""
    said = named["name"].lower()
    return said.split()[-1] in {"action", "actions"} if "#" in named["marker"] else said in NOT_ACTIONS


def _marker(named: re.Match[str]) -> str:
    """Return how a line is marked as one of a list, whatever its number."""
    return re.sub(r"\d+", "1", named["marker"]) + ("" if "#" in named["marker"] else named["dress"])


def _sketch(name: str, said: str) -> ActionSketch:
    parts = _EXAMPLE.split(said, maxsplit=1)
    tidy = [part.strip(f"-*{string.whitespace}") for part in parts]
    return ActionSketch(name, tidy[0], tidy[1] if len(tidy) > 1 else "")


def read_advice(answer: str) -> str | None:
    """Return what an answer advises, None where it says that nothing is to be changed, or nothing at all.

    What follows the last heading about advice counts; an answer without one is advice as a whole.
    """
    head, sections = sections_of(answer, ("advice", "suggestion", "feedback"))
    given = [section for group in sections.values() for section in group]
    last = max(given, key=lambda section: section.lines[0].number if section.lines else 0, default=None)
    said = head if last is None else "\n".join(line.text for line in last.lines)
    return None if not said.strip() or _ACCEPTED.fullmatch(said.strip()) else said.strip()


# --- steps 4 and 5

SCHEMA_TITLES = ("parameter", "precondition", "effect", "predicate")
PROBLEM_TITLES = ("object", "state", "goal")


@dataclass(frozen=True, slots=True)
class Written:
    """The PDDL of an answer by heading, for checks that say on which line a fault stands."""

    fragments: dict[str, Fragment]
    faults: tuple[Fault, ...]


def read_written(answer: str, titles: Sequence[str]) -> Written:
    """Return the fragment under each heading, and what is missing or there twice.

    Predicates that stand under a second heading of theirs are read past: if one of them is used, it is found to lack.
    """
    _, sections = sections_of(answer, titles)
    faults, fragments = list[Fault](), dict[str, Fragment]()
    for title in titles:
        group = sections[title]
        if not group:
            faults.append(
                Fault("header_inclusion", f"no heading '## {HEADINGS[title]}'; add it with what belongs there")
            )
        elif len(group) > 1 and title != "predicate":
            place = group[1].lines[0].number if group[1].lines else 0
            message = (
                f"heading '## {HEADINGS[title]}' stands {len(group)} times; answer with one action, or one problem"
            )
            faults.append(Fault("header_inclusion", message, place))
        lines = group[0].body if group else ()
        kind = "declared" if title in {"parameter", "object"} else "lists"
        fragments[title] = _declared_fragment(lines) if kind == "declared" else _lists_fragment(lines)
        if group and fragments[title].is_empty and title in {"precondition", "effect", "state", "goal"}:
            message = f"no PDDL below '## {HEADINGS[title]}'; write it in brackets, '(and)' where there is nothing"
            if not any(_NOTHING.fullmatch(line.text.strip()) for line in lines) or title in {"effect", "goal"}:
                faults.append(Fault("header_inclusion", message, lines[0].number if lines else 0))
    return Written(fragments, tuple(faults))


HEADINGS = {
    "parameter": "Parameters",
    "precondition": "Preconditions",
    "effect": "Effects",
    "predicate": "New predicates",
    "object": "Objects",
    "state": "Initial state",
    "goal": "Goal",
}
"""What each section is called where an answer is asked for."""


def _declarations(lines: Sequence[Line]) -> Iterator[tuple[Line, Parameter]]:
    for line in lines:
        text = _spaced(line.text.expandtabs(4))
        bullet = _BULLET.match(text)
        said = (bullet["text"] if bullet else text).strip()
        typed = _DECLARED.match(said)
        if typed:
            rest = (typed["rest"] or "").strip()
            yield line, Parameter(typed["name"].lower(), " ".join(typed["type"].lower().split()), rest)
        elif (bare := _UNTYPED.match(said)) and (bullet or bare["name"].startswith("?")):
            yield line, Parameter(bare["name"].lower(), "", (bare["rest"] or "").strip())


def _declared_fragment(lines: Sequence[Line]) -> Fragment:
    """Return declarations, one a line of the answer."""
    if not lines:
        return Fragment("", 0)
    first, by_line = lines[0].number, {line.number: found.pddl for line, found in _declarations(lines)}
    return Fragment("\n".join(by_line.get(number, "") for number in range(first, lines[-1].number + 1)), first)


def _lists_fragment(lines: Sequence[Line]) -> Fragment:
    """Return the bracketed lists that begin a line or an item, on the lines where they stand.

    What follows one on its line is left out as a comment.
    """
    if not lines:
        return Fragment("", 0)
    first, kept, depth = lines[0].number, dict[int, str](), 0
    for line in lines:
        text = line.text.expandtabs(4)
        if not depth:
            bullet = _BULLET.match(text)
            text = _KEYWORD.sub("", (bullet["text"] if bullet else text).strip().strip("`"))
            if not text.startswith(("(", ")")):
                continue
        kept[line.number], depth = _until_closed(text, depth)
    return Fragment("\n".join(kept.get(number, "") for number in range(first, lines[-1].number + 1)).rstrip(), first)


def _until_closed(text: str, depth: int) -> tuple[str, int]:
    """Return what of a line belongs to a list that is open, or begins on it, and how many are open after it."""
    for position, character in enumerate(text):
        if character == ";":
            return text[:position].rstrip(), depth
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth <= 0 and character == ")":
            more = re.match(r"\s*(?=[()])", text[position + 1 :])
            if more is None:
                return text[: position + 1], 0
            depth = max(depth, 0)
    return text, depth


def read_definitions(answer: str) -> tuple[str, str]:
    """Return the domain and the problem that an answer defines in PDDL, the last of each; empty where there is none.

    One that is never closed goes to the end of the answer, or to the next definition.
    """
    said, found = without_thinking(answer) or "", {"domain": "", "problem": ""}
    starts = list(_DEFINITION.finditer(said))
    ends = [*(start.start() for start in starts), len(said)][1:]
    for start, end in zip(starts, ends, strict=True):
        lines, depth = list[str](), 0
        for line in said[start.start() : end].splitlines():
            kept, depth = _until_closed(line, depth)
            lines.append(kept)
            if not depth:
                break
        found[start["what"].lower()] = "\n".join(lines) + "\n"
    return found["domain"], found["problem"]


def read_schema(name: str, answer: str) -> Schema:
    """Return an action as far as an answer has it; nothing is refused, see `checks`."""
    _, sections = sections_of(answer, SCHEMA_TITLES)
    written = read_written(answer, SCHEMA_TITLES).fragments
    parameters = sections["parameter"][0].body if sections["parameter"] else ()
    predicates = sections["predicate"][0] if sections["predicate"] else Section("", ())
    return Schema(
        name,
        tuple(parameter for _, parameter in _declarations(parameters)),
        written["precondition"].text.strip(),
        written["effect"].text.strip(),
        tuple(predicate for _, predicate in read_predicates(predicates.body)),
    )


def read_predicates(lines: Sequence[Line]) -> Iterator[tuple[Line, Predicate]]:
    """Yield the predicates of a list, ``- (at ?p - parcel ?l - place): what it says``, each with its line.

    One whose bracket a line leaves open goes on on those below it that begin neither an item nor a list.
    """
    for line in _unbroken(lines):
        found = re.search(r"\(\s*([^\s()?]++)([^()]*(?:\(either[^()]*\)[^()]*)*)\)(.*)$", line.text)
        if found:
            declaration = f"({' '.join((found[1] + ' ' + found[2]).lower().split())})"
            comment = re.sub(r"^[`\s:;–—-]+", "", found[3]).strip()  # noqa: RUF001
            yield line, Predicate(found[1].lower(), declaration, comment)


def _unbroken(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield lines, to each that leaves a bracket open those added that go on with it."""
    whole: Line | None = None
    for line in lines:
        if whole and whole.text.count("(") > whole.text.count(")") and not _BEGINS.match(line.text):
            whole = Line(whole.number, f"{whole.text.partition(COMMENT)[0]} {line.text.strip()}")
        else:
            yield from [whole] if whole else []
            whole = line
    yield from [whole] if whole else []


def read_problem_sketch(answer: str) -> ProblemSketch:
    """Return a problem as far as an answer has it; nothing is refused, see `checks`."""
    _, sections = sections_of(answer, PROBLEM_TITLES)
    written = read_written(answer, PROBLEM_TITLES).fragments
    objects = sections["object"][0].body if sections["object"] else ()
    return ProblemSketch(
        tuple(parameter for _, parameter in _declarations(objects)),
        written["state"].text.strip(),
        written["goal"].text.strip(),
    )

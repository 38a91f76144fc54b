"""Texts whose statements have numbers, and PDDL that says in comments which statement it writes.

A text and its problem run side by side: each section, list of objects, fact and goal of the one is one statement of
the other. A model from nothing learnt little within minutes where it had to find the next statement by what it wrote
last; with statements copied first, and short examples first, it learnt in as many (docs/log.md, where the two are not
told apart). The compact rendering numbers the statements of a text, and its answers repeat each, in a comment of
PDDL, before what it stands for: a chain of thought. Ours.

Any text has statements: lines, and what full stops and semicolons part. Which of them says what is known of texts by
`natural_language.problem_text` only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import groupby

from plansmith.pddl.model import Problem, literals_of, typed_text
from plansmith.pddl.printer import print_problem

_PARAGRAPH = re.compile(r"\n\s*\n")
_STOP = re.compile(r"(?<=\.)\s+|;\s+|\n+")
_TOKEN = re.compile(r"[()]|[^\s()]+")


def numbered_text(text: str, mark: str) -> str:
    """Return a text with a number before each statement, a line each, and last a numbered mark of what is wanted."""
    return "".join(f"{line}\n" for line in _numbered(text, mark))


def numbered_answer(pddl: str, problem: Problem, text: str, mark: str) -> str:
    """Return PDDL with comments that repeat the statements of a text before what they stand for.

    Args:
        pddl: the problem as `print_problem` writes it, or with a mistake: then each comment stands where it would stand
            without.
        problem: in the order of the text.
        text: by `problem_text`, of this problem.
        mark: as in `numbered_text`; the last comment.

    Raises:
        RuntimeError: the text is not of this problem.
    """
    pieces = list(_pieces(problem, _paragraphs(text)))
    expected = [_TOKEN.findall(piece) for _, piece in pieces]
    whole = [token for tokens in expected for token in tokens]
    if whole != _TOKEN.findall(print_problem(problem)):
        raise RuntimeError(f"a text's statements are not those of its problem:\n{text}\n{print_problem(problem)}")
    tokens = _TOKEN.findall(pddl)
    lines, places = _numbered(text, mark), _places(whole, tokens)
    comments, start = defaultdict[int, list[str]](list), 0
    for (number, _), piece in zip(pieces, expected, strict=True):
        if number:
            comments[places[start]].append(f";{lines[number - 1]}\n")
        start += len(piece)
    return "".join(_laid_out(tokens, comments)) + "\n"


def _numbered(text: str, mark: str) -> list[str]:
    lines = [*(line for paragraph in _paragraphs(text) for line in paragraph), f"{mark}:"]
    return [f"{number} {line}" for number, line in enumerate(lines, 1)]


def _paragraphs(text: str) -> list[list[str]]:
    """Return the statements of each paragraph, without what marks the items of a list."""
    found = [_STOP.split(paragraph.strip()) for paragraph in _PARAGRAPH.split(text)]
    return [[line.strip().removeprefix("- ") for line in lines if line.strip()] for lines in found if any(lines)]


def _pieces(problem: Problem, paragraphs: list[list[str]]) -> Iterator[tuple[int, str]]:
    """Yield the number of each statement from the first on objects, and the PDDL that it stands for.

    What no statement says comes first, as number 0; the number after the last closes the problem.
    """
    opening, objects, *rest = paragraphs
    lists = [typed_text(tuple(group)) for _, group in groupby(problem.objects, key=lambda typed: typed.types)]
    sections = [[*(lists or [""])], [")(:init", *(map(str, problem.init or ("",)))]]
    sections += [["", *map(str, problem.function_values)]] if problem.function_values else []
    sections += [[")(:goal(and", *map(str, literals_of(problem.goal))]]
    if problem.metric:
        sections.append([f"))(:metric minimize({problem.metric}))", *[""] * (len(rest[-1]) - 1)])
    if [len(section) for section in sections] != [len(objects), *map(len, rest)]:
        raise RuntimeError(f"statements of other sections than the problem's: {paragraphs}\n{print_problem(problem)}")
    sections[0][0] = f"(:objects {sections[0][0]}"
    sections.append([")" if problem.metric else ")))"])
    yield 0, f"(define(problem {problem.name})(:domain {problem.domain_name})"
    yield from enumerate((piece for section in sections for piece in section), len(opening) + 1)


def _places(whole: list[str], tokens: list[str]) -> list[int]:
    """Return for each token where it stands in another text, or would stand."""
    codes = SequenceMatcher(None, whole, tokens, autojunk=False).get_opcodes()
    starts = [code[1] for code in codes]
    places = []
    for place in range(len(whole)):
        _, first, _, start, end = codes[bisect_right(starts, place) - 1]
        places.append(min(start + place - first, end))
    return places


def _laid_out(tokens: list[str], comments: dict[int, list[str]]) -> Iterator[str]:
    """Yield tokens and what stands between them: comments, each with its line's end, or a space."""
    for place, word in enumerate(tokens):
        if place in comments:
            yield "".join(comments[place])
        elif place and tokens[place - 1] != "(" and word != ")":
            yield " "
        yield word
    yield "".join(comments.get(len(tokens), ()))

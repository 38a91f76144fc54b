"""Words that a model does not know, behind words that it does: so that one from nothing reads of domains never seen.

Every word but those of the frames around it becomes one of a pool, drawn anew for each conversation, and answers are
turned back. What is left to learn is what stands where, which is the same for all domains. Hidden texts are lower-case
words and signs with a space between each two, so that a word is the same token wherever it stands. A name that ends in
a digit (``l0-1``) is one word, ``~`` joins the parts of any other, ``::`` begins a keyword of PDDL, variables are
capitals, and the numbers of paragraphs and sentences begin with one.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Self

from plansmith.config.generation import SamplingConfig
from plansmith.errors import BadInputError
from plansmith.generation import Answers, Conversation, Generator, Message
from plansmith.modelling.products import RESERVED
from plansmith.modelling.sentences import MARK, PARAGRAPH

NEWLINE, INDENT, HYPHEN, KEYWORD = "¶", "·", "~", "::"
_PIECE = re.compile(
    r"\?x(?P<number>\d+)\b|(?P<name>(?<![\w-])[A-Za-z0-9]+([-_][A-Za-z0-9]+)*[-_][A-Za-z0-9]*\d(?![\w-]))"
    r"|(?<=\w)(?P<joint>[-_])(?=\w)|(?P<word>[A-Za-z0-9]+)|(?<![^\s(])(?P<keyword>:)(?=[A-Za-z])"
    r"|(?P<mark>§§?\d+)|(?P<sign>#+|`+|\S)"
)
_SPOKEN_VARIABLE = re.compile(r"X(\d+)")
SIGNS = {PARAGRAPH: "P", MARK: "N"}
"""What the numbers of paragraphs and sentences begin with, shown and hidden."""
_SHOWN = {hidden: shown for shown, hidden in SIGNS.items()}
_MARK = re.compile(r"([PN])(\d+)")
BEGINNINGS = {SIGNS[PARAGRAPH]: range(7), SIGNS[MARK]: range(121)}
"""What can be added to all numbers of a lesson: of long texts alone the high ones would be learnt too seldom."""
SHIFTED = 0.5
"""Share of lessons with such numbers. Texts that are asked about begin with one: low ones must be learnt as well."""
_LETTERS = "abcdefghijklmnopqrst"
POOL = tuple("q" + "".join(pair) for pair in product(_LETTERS, repeat=2))
"""What words hide behind: 400 that no text has."""
NAMES = tuple("z" + "".join(pair) for pair in product(_LETTERS, _LETTERS[:10]))
"""What words with a digit hide behind, 200: whoever reads ``b7`` sees that it is a name."""
_HIDING = frozenset((*POOL, *NAMES))
_NO_SPACE_BEFORE, _NO_SPACE_AFTER = frozenset(")]:;,."), frozenset("([")


def hidden_pieces(text: str) -> Iterator[str]:
    """Yield the words and signs of a text; words in lower case, variables as capitals."""
    for number, line in enumerate(text.strip().split("\n")):
        if number:
            yield NEWLINE
        yield from INDENT * ((len(line) - len(line.lstrip(" "))) // 2)
        for found in _PIECE.finditer(line):
            spoken = _SPOKEN_VARIABLE.fullmatch(found[0])
            if found["number"] or spoken:
                yield _variable(int(found["number"] or spoken[1]))  # type: ignore[index]
            elif found["joint"]:
                yield HYPHEN if found[0] == "-" else "_"
            elif found["keyword"]:
                yield KEYWORD
            elif found["mark"]:
                yield SIGNS[found[0].rstrip("0123456789")] + found[0].lstrip(MARK)
            else:
                yield found[0].lower()


def _variable(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else f"X{number}"


def is_word(piece: str) -> bool:
    """Return whether a piece is a word that can be hidden."""
    return piece[:1].isalnum() and piece == piece.lower()


@dataclass
class Hiding:
    """The words of one conversation.

    Args:
        kept: words that stay.
        rng: draws what the others hide behind.
        begins_anywhere: draw from `BEGINNINGS` what is added to the numbers of paragraphs and sentences, in a share
            `SHIFTED` of conversations.
    """

    kept: frozenset[str]
    rng: random.Random
    begins_anywhere: bool = False
    _behind: dict[str, str] = field(default_factory=dict)
    _free: dict[bool, list[str]] = field(default_factory=dict)
    _added: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._free = {False: self.rng.sample(POOL, len(POOL)), True: self.rng.sample(NAMES, len(NAMES))}
        is_shifted = self.begins_anywhere and self.rng.random() < SHIFTED
        self._added = {sign: self.rng.choice(own) if is_shifted else 0 for sign, own in BEGINNINGS.items()}

    def hide(self, text: str) -> str:
        """Return a text with its words hidden; words of the pool stay, which stand in answers of models alone.

        Raises:
            BadInputError: more different words than the pool has.
        """
        return " ".join(self._hidden(piece) for piece in hidden_pieces(text))

    def hide_all(self, messages: Conversation) -> tuple[Message, ...]:
        """Return a conversation with its words hidden."""
        return tuple(Message(message.role, self.hide(message.text)) for message in messages)

    def _hidden(self, word: str) -> str:
        if mark := _MARK.fullmatch(word):
            return f"{mark[1]}{int(mark[2]) + self._added[mark[1]]}"
        if not is_word(word) or word in self.kept or word in _HIDING:
            return word
        if word not in self._behind:
            free = self._free[any(map(str.isdigit, word))]
            if not free:
                raise BadInputError("a conversation of more words than there are to hide them behind",
                                    got=f"more than {len(POOL)}, or more than {len(NAMES)} with digits",
                                    expected="fewer", cure="give a shorter text")  # fmt: skip
            self._behind[word] = free.pop()
        return self._behind[word]

    def reveal(self, text: str) -> str:
        """Return a hidden text, such as a model's answer, in its words; one of the pool that hides none stays."""
        words = {hidden: word for word, hidden in self._behind.items()}
        made, is_glued = "", True
        for piece in text.split():
            if piece in (NEWLINE, INDENT):
                made += "\n" if piece == NEWLINE else "  "
                is_glued = True
                continue
            is_joint = piece in (HYPHEN, "_")
            shown = {HYPHEN: "-", KEYWORD: ":"}.get(piece, words.get(piece, piece))
            if len(piece) == 1 and "A" <= piece <= "Z":
                shown = f"?x{ord(piece) - ord('A')}"
            elif spoken := _SPOKEN_VARIABLE.fullmatch(piece):
                shown = f"?x{spoken[1]}"
            elif mark := _MARK.fullmatch(piece):
                shown = f"{_SHOWN[mark[1]]}{int(mark[2]) - self._added[mark[1]]}"
            made += shown if is_glued or is_joint or piece in _NO_SPACE_BEFORE else f" {shown}"
            is_glued = is_joint or piece == KEYWORD or piece in _NO_SPACE_AFTER
        return made


@dataclass(frozen=True)
class HiddenWords:
    """A `Generator` whose model reads and writes hidden words.

    Attributes:
        generator: the model.
        kept: words that it knows.
    """

    generator: Generator
    kept: frozenset[str]

    def complete(
        self,
        conversations: Sequence[Conversation],
        sampling: SamplingConfig,
        *,
        seeds: Sequence[int],
        description: str | None = None,
    ) -> Answers:
        """Yield the answers in their words; see `plansmith.generation.Generator`."""
        hidings = [Hiding(self.kept, _rng_of(messages)) for messages in conversations]
        asked = [hiding.hide_all(messages) for hiding, messages in zip(hidings, conversations, strict=True)]
        for number, answers in self.generator.complete(asked, sampling, seeds=seeds, description=description):
            reveal = hidings[number].reveal
            yield number, [replace(own, text=None if own.text is None else reveal(own.text)) for own in answers]


def _rng_of(messages: Conversation) -> random.Random:
    said = repr([(message.role, *hidden_pieces(message.text)) for message in messages])  # in capitals or not
    return random.Random(hashlib.sha256(said.encode()).hexdigest())


@dataclass(frozen=True)
class KeptWords:
    """The words that a model was trained to know, and their file."""

    words: frozenset[str]

    @classmethod
    def of(cls, texts: Iterable[str], *, but: str) -> Self:
        """Return the words of texts and of PDDL, those that begin as told left out."""
        found = {piece for text in texts for piece in hidden_pieces(text) if is_word(piece)} | RESERVED
        return cls(frozenset(word for word in found if not word.startswith(but)))

    def write(self, path: Path) -> None:
        """Write the words."""
        path.write_text(json.dumps(sorted(self.words)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the words of a file."""
        return cls(frozenset(json.loads(path.read_text(encoding="utf-8"))))

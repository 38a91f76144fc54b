"""Every command in README and docs is one that its parser takes; every target of `make` is in the Makefile.

Nothing is run: a command's parser reads the words, and its work never begins. In a block of code a command must be
whole. Within a sentence it may lack arguments (``plansmith watch``), but whatever is written must exist.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import itertools
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipelines.pddl_instruct import PIPELINE
from plansmith import cli

ROOT = Path(__file__).resolve().parent.parent
HISTORY = {ROOT / "CHANGELOG.md", ROOT / "docs" / "log.md"}
"""They tell what was done on a day, with the commands of that day."""
TEXTS = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("cluster/**/*.md")} - HISTORY)
PRESETS = {path.stem for path in (ROOT / "pipelines" / "presets").rglob("*.yaml")}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))

PLACEHOLDERS = {"N": "1", "PIPELINE": "pddl_instruct", "NAME": "pddl_instruct"}
"""Words that stand for any number and any pipeline; others in capitals stand for texts, which need no example."""
INCOMPLETE = ("the following arguments are required", "expected one argument", "expected at least one argument")
"""What a parser says of a command that only lacks something."""


@dataclass(frozen=True)
class Command:
    """A command as it is written."""

    where: str
    words: tuple[str, ...]
    is_whole: bool
    """Whether it can be typed as it stands."""

    def __str__(self) -> str:
        return f"{self.where}: {' '.join(self.words)}"


class ParsedError(Exception):
    """The words were read; what follows would be the work."""


class RefusedError(Exception):
    """The words cannot be read."""


def documented_commands() -> list[Command]:
    """Return every command of ours in the texts, in blocks and within sentences."""
    return [command for path in TEXTS for command in commands_of(path)]


def commands_of(path: Path) -> Iterator[Command]:
    """Yield the commands of one text."""
    name = str(path.relative_to(ROOT))
    pieces = re.split(r"^```.*$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for text in pieces[::2]:
        for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", text):
            yield from (Command(name, words, is_whole=False) for words in commands_in(" ".join(code.split())))
    for block in pieces[1::2]:
        for line in block.replace("\\\n", " ").splitlines():
            yield from (Command(name, words, is_whole=True) for words in commands_in(line))


def commands_in(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the command of ours in a line of a shell; what follows ``ray job submit`` is one as well.

    A script alone, without ``python`` or ``./`` before it or words behind it, is the name of a file.
    """
    reader = shlex.shlex(re.sub(r"[][]", "", line), posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    try:
        words = list(itertools.takewhile(lambda word: not set(word) <= set("();<>|&"), reader))
    except ValueError:
        return  # an apostrophe of a sentence
    if words[:3] == ["ray", "job", "submit"]:
        words = ["python", *itertools.dropwhile(lambda word: not word.endswith(".py"), words)]
    is_script = words[:1] == ["python"] or len(words) > 1 or line.startswith("./")
    if words[:1] == ["python"]:
        words = words[1:]
    if words and ((words[0].endswith(".py") and is_script) or (len(words) > 1 and words[0] in ("plansmith", "make"))):
        yield tuple(words)


def take(command: Command) -> None:
    """Give a command to its parser.

    Raises:
        RefusedError: it is none, or names a preset that is none.
    """
    program, *words = command.words
    words = [PLACEHOLDERS.get(word, word) for word in words]
    presets = [value for option, value in itertools.pairwise(words) if option == "--preset"]
    if missing := [preset for preset in presets if not preset.endswith(".yaml") and preset not in PRESETS]:
        raise RefusedError(f"no such preset: {', '.join(missing)}")
    if program == "make":
        if missing := [word for word in words if "=" not in word and word not in TARGETS]:
            raise RefusedError(f"no such target: {', '.join(missing)}")
    elif program == "plansmith":
        read_by(cli.main, words, is_whole=command.is_whole)
    else:
        read_by(main_of(program), words, is_whole=command.is_whole)


def main_of(script: str) -> Callable[[], int]:
    """Return the function that a script of ours hands its words to.

    Raises:
        RefusedError: there is no such script.
    """
    below = re.sub(r"^.*(?=(pipelines|benchmarks|requirements)/)", "", script)
    if not (ROOT / below).is_file():
        raise RefusedError(f"no such file: {script}")
    found: Callable[[], int] = importlib.import_module(below.removesuffix(".py").replace("/", ".")).main
    return found


def read_by(main: Callable[[], int], words: list[str], *, is_whole: bool) -> None:
    """Let a command read words, and stop it there.

    Raises:
        RefusedError: it does not take them.
    """
    with pytest.MonkeyPatch.context() as patch:
        parsers = stopped_after_parsing(patch)
        patch.setattr(sys, "argv", ["plansmith", *words])
        try:
            main()
        except ParsedError:
            pass
        except RefusedError as error:
            if is_whole or not any(text in str(error) for text in INCOMPLETE):
                raise
    # a parser also takes the beginning of an option's name
    known = {option for parser in parsers for option in parser._option_string_actions}
    unknown = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"} - known
    if unknown:
        raise RefusedError(f"no such option: {', '.join(sorted(unknown))}")


def stopped_after_parsing(patch: pytest.MonkeyPatch) -> list[argparse.ArgumentParser]:
    """Let every parser raise when it has read a command; return those that are asked, as they are asked."""
    asked: list[argparse.ArgumentParser] = []
    real, depth = argparse.ArgumentParser.parse_known_args, [0]

    def parse_known_args(
        parser: argparse.ArgumentParser, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        asked.append(parser)
        depth[0] += 1
        try:
            found, rest = real(parser, args, namespace)
        finally:
            depth[0] -= 1
        if depth[0] == 0 and not (hands_on(found)):
            if rest:
                raise RefusedError(f"unrecognised: {' '.join(rest)}")
            raise ParsedError
        return found, rest

    def error(parser: argparse.ArgumentParser, message: str) -> None:
        raise RefusedError(message)

    patch.setattr(argparse.ArgumentParser, "parse_known_args", parse_known_args)
    patch.setattr(argparse.ArgumentParser, "error", error)
    return asked


def hands_on(known: argparse.Namespace) -> bool:
    """Say whether `plansmith` leaves the other words to a command, or that to a pipeline, with a parser of its own."""
    return cli.is_handed_on(known) or vars(known).keys() == {"pipeline"}


@pytest.fixture(autouse=True)
def _scripts_find_their_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "benchmarks")])


def test_documented_commands_are_found_in_blocks_and_in_sentences() -> None:
    found = documented_commands()
    assert len([command for command in found if command.is_whole]) > 40
    assert len([command for command in found if not command.is_whole]) > 15
    assert {"plansmith", "make"} < {command.words[0] for command in found}
    assert any(command.words[0].endswith(".py") for command in found)


def test_commands_in_a_line_leave_out_comments_and_what_is_not_ours() -> None:
    assert list(commands_in("plansmith watch runs/demo   # a live page")) == [("plansmith", "watch", "runs/demo")]
    assert list(commands_in("ray job submit --working-dir . -- pipelines/a.py --seed 1")) == [
        ("pipelines/a.py", "--seed", "1")
    ]
    assert list(commands_in("python benchmarks/loop.py")) == [("benchmarks/loop.py",)]
    assert list(commands_in("kubectl get pods")) == []
    assert list(commands_in("plansmith/    the library's parts")) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("plansmith evaluate runs/demo --arms phase1", "--arms"),
        ("plansmith evaluate runs/demo --prob mine", "no such option: --prob"),
        ("plansmith watch runs/demo --quickly", "--quickly"),
        ("plansmith retrain runs/demo", "retrain"),
        ("plansmith dataset fill x", "fill"),
        ("plansmith problems ferry -n many", "many"),
        ("plansmith report", "required"),
        ("python pipelines/no_such.py", "no such file"),
        ("make tset", "no such target: tset"),
        ("plansmith run pddl_instruct --preset dmeo", "no such preset: dmeo"),
    ],
)
def test_command_that_does_not_exist_is_refused(line: str, message: str) -> None:
    [words] = commands_in(line)
    with pytest.raises(RefusedError, match=message):
        take(Command("here", words, is_whole=True))


def test_command_in_a_sentence_may_lack_arguments_but_name_no_option_that_is_not() -> None:
    take(Command("here", ("plansmith", "validate", "--json"), is_whole=False))
    with pytest.raises(RefusedError, match="--jsno"):
        take(Command("here", ("plansmith", "validate", "--jsno"), is_whole=False))


@pytest.mark.parametrize("command", documented_commands(), ids=str)
def test_documented_command_is_taken_by_its_parser(command: Command) -> None:
    take(command)


def yaml_examples() -> list[str]:
    """Return the settings that README and the page on domains of one's own show, whole presets as they stand."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", ROOT / "docs" / "own-domain.md")]
    return [
        block for text in texts for block in re.findall(r"^```yaml\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    ]


@pytest.mark.parametrize("example", yaml_examples(), ids=lambda text: text.partition("\n")[0])
def test_documented_settings_of_ones_own_domain_are_taken(example: str, tmp_path: Path) -> None:
    path = tmp_path / "my-domain.yaml"
    path.write_text(example, encoding="utf-8")
    config = PIPELINE.settings(str(path))
    assert config.problems.folder == "my-domain/problems"


def python_imports() -> list[tuple[str, str, str]]:
    """Return the page, module and name of every import in the Python that the docs show."""
    return [
        (page.name, str(node.module), name.name)
        for page in sorted((ROOT / "docs").glob("*.md"))
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom)
        for name in node.names
    ]  # fmt: skip


@pytest.mark.parametrize(("page", "module", "name"), python_imports())
def test_documented_python_imports_what_is_there(page: str, module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name), page


def test_tests_that_the_docs_name_are_there() -> None:
    named = {found for page in (ROOT / "docs").glob("*.md")
             for found in re.findall(r"(test_\w+\.py)::(test_\w+)", page.read_text(encoding="utf-8"))}  # fmt: skip
    assert len(named) > 20
    missing = [f"{file}::{name}" for file, name in sorted(named)
               if f"def {name}(" not in (ROOT / "tests" / file).read_text(encoding="utf-8")]  # fmt: skip
    assert not missing


def test_readme_is_short_enough_for_a_newcomer() -> None:
    assert len((ROOT / "README.md").read_bytes()) < 12_000

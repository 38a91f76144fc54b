"""``plansmith problems``: draw problems of a domain, each of another canonical form."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from plansmith.data.storage import make_folder, storage_errors
from plansmith.errors import BadInputError
from plansmith.layout import text_table
from plansmith.pddl.model import Problem
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.problems.distinct import MAX_REPEATS, distinct_problems
from plansmith.problems.library import PlanningDomain, domain_names, load_domain
from plansmith.progress import progress_bar
from plansmith.text.natural_language import problem_text

EPILOG = """\
DOMAIN is a domain of the project (plansmith problems --list) or a folder with domain.pddl and settings.yaml.

examples:
  plansmith problems ferry --level L2 -n 100 --seed 1 --out problems/ferry
  plansmith problems logistics -n 1 --text
  plansmith problems my-domain/ --level small
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "problems",
        help="draw problems of a domain",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("domain", nargs="?", metavar="DOMAIN")
    parser.add_argument("--list", action="store_true", help="the project's domains with their levels and sizes")
    parser.add_argument("--level", help="a level of the domain (its first)")
    parser.add_argument("-n", "--number", type=int, default=1, help="problems, no two the same under other names (1)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same problems (0)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write domain.pddl, p0001.pddl, ... instead of PDDL "
                        "to stdout")  # fmt: skip
    parser.add_argument("--text", action="store_true", help="each problem in words as well")
    parser.set_defaults(work=run)


def run(arguments: argparse.Namespace) -> int:
    """Draw what the command line asks for; return 0, or 1 when the level has fewer problems than asked for."""
    if arguments.list:
        print(text_table(("domain", "level", "sizes"), list(_listed())))
        return 0
    if arguments.domain is None:
        raise BadInputError("which domain?", expected=f"one of {', '.join(domain_names())}, or a folder",
                            cure="plansmith problems --list")  # fmt: skip
    if arguments.number < 1:
        raise BadInputError("nothing to draw", got=f"-n {arguments.number}", expected="a number of problems")
    loaded = load_domain(arguments.domain)
    level = arguments.level or loaded.levels[0]
    loaded.sizes_of(level)
    if arguments.text and loaded.phrases is None:
        raise BadInputError("the domain has no phrases.yaml", where=str(loaded.folder), cure="leave out --text")
    found = _distinct_problems(loaded, level, arguments.number, arguments.seed)
    if arguments.out is None:
        for number, problem in enumerate(found):
            print(_shown(loaded, problem, number, with_text=arguments.text))
    else:
        with storage_errors(arguments.out):
            _write(loaded, found, arguments.out, with_text=arguments.text)
        print(_summary(loaded, level, found))
    return 0 if len(found) == arguments.number else 1


def _distinct_problems(loaded: PlanningDomain, level: str, wanted: int, seed: int) -> list[Problem]:
    """Return problems of different canonical forms, fewer than wanted where the level has no more."""
    found: list[Problem] = []
    with progress_bar(wanted, f"drawing {loaded.name} {level}", unit="problem") as bar:
        for problem in itertools.islice(distinct_problems(loaded, level, seed=seed), wanted):
            found.append(problem)
            bar.update()
    if len(found) < wanted:
        print(f"only {len(found)} of {wanted}: {MAX_REPEATS} draws in a row were the same under other names",
              file=sys.stderr)  # fmt: skip
    return found


def _shown(loaded: PlanningDomain, problem: Problem, number: int, *, with_text: bool) -> str:
    if not with_text or loaded.phrases is None:
        return print_problem(problem)
    text = problem_text(loaded.domain, loaded.phrases, problem, phrasing=number)
    return f"{print_problem(problem)}\n{text}\n"


def _write(loaded: PlanningDomain, found: list[Problem], folder: Path, *, with_text: bool) -> None:
    make_folder(folder)
    texts = {"domain.pddl": print_domain(loaded.domain)}
    for number, problem in enumerate(found, start=1):
        texts[f"p{number:04d}.pddl"] = print_problem(problem)
        if with_text and loaded.phrases is not None:
            texts[f"p{number:04d}.txt"] = problem_text(loaded.domain, loaded.phrases, problem, phrasing=number)
    others = [path for path in sorted(folder.glob("p[0-9]*.*")) if path.suffix in (".pddl", ".txt")]
    for path in (folder / "domain.pddl", *others):
        if path.is_file() and path.read_bytes() != texts.get(path.name, "").encode():
            raise BadInputError("a file of another call, or of your own", where=str(path),
                                expected="a folder of its own", cure="give another --out, or remove it")  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())


def _summary(loaded: PlanningDomain, level: str, found: list[Problem]) -> str:
    sizes = [len(problem.objects) for problem in found]
    facts = [len(problem.init) for problem in found]
    row = [f"{loaded.name} {level}", str(len(found)), _range(sizes), _range(facts)]
    return text_table(("domain, level", "problems", "objects", "initial facts"), [row])


def _range(values: list[int]) -> str:
    if not values:
        return "-"
    return f"{min(values)} to {max(values)}" if min(values) < max(values) else str(values[0])


def _listed() -> Iterator[list[str]]:
    for name in domain_names():
        for level, sizes in load_domain(name).settings.levels.items():
            yield [name, level, ", ".join(f"{size} {least}-{most}" for size, (least, most) in sizes.items())]

"""``plansmith domains``: invent domains, have one written, say what domains share with others, names apart."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from plansmith.config.invention import InventionConfig
from plansmith.config.loading import build_model, read_yaml
from plansmith.data.inventing import Candidate
from plansmith.data.invention_selection import Selection
from plansmith.errors import BadInputError
from plansmith.groups import grouped
from plansmith.invented import InventionJob, invent_domains
from plansmith.layout import text_table
from plansmith.pddl.domain_distance import DomainForms, Shared, shared
from plansmith.problems.library import SETTINGS, load_domain
from plansmith.progress import progress_bar

WRITE = "write"
"""The command that asks a policy; it works on Ray, is an entry point and parses its own arguments."""
MOST_PAIRS = 20
"""Pairs that are printed; ``--json`` has all."""

EPILOG = """\
DOMAIN is a domain of the project (plansmith problems --list), a folder with domain.pddl and settings.yaml, or a folder
of such folders. What generate has written is taken by every other command by its path.

exit code of generate: 0; 2 bad input, such as a grid that gives no domains
exit code of compare: 0 no domain is another one in other words; 1 some are; 2 bad input

examples:
  plansmith domains generate --n 500 --seed 0 --out my-domains
  plansmith domains generate --n 20 --out bred --sources blocksworld ferry --grid grid.yaml --jobs 2
  plansmith domains compare my-domains --with rovers briefcase
  plansmith domains write demos.jsonl --policy my-model --out my-domain
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    help_text = "invent domains, have one written of demonstrations, compare domains up to names"
    raw = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser("domains", help=help_text, epilog=EPILOG, formatter_class=raw)
    works = parser.add_subparsers(dest="domains_command", metavar="COMMAND", required=True)
    generate = works.add_parser("generate", help="invent domains that no two are the same under other names")
    generate.add_argument("--n", type=int, default=20, metavar="N", help="domains (20)")
    generate.add_argument("--seed", type=int, default=0, help="the same seed and settings give the same domains (0)")
    generate.add_argument("--out", type=Path, required=True, metavar="FOLDER",
                          help="gets a folder for each domain; begun folders are continued")  # fmt: skip
    generate.add_argument("--sources", nargs="+", default=(), metavar="DOMAIN",
                          help="domains to train on, half of the candidates are bred from (none)")  # fmt: skip
    generate.add_argument("--grid", type=Path, metavar="FILE",
                          help="YAML: sizes, and what a domain must show (plansmith/config/invention.py)")  # fmt: skip
    generate.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (1)")
    generate.add_argument("--allow-known", action="store_true",
                          help="also domains that are one of the project's in other words")  # fmt: skip
    generate.set_defaults(work=run_generate)
    works.add_parser(WRITE, help="let a policy write the domain of demonstrations", add_help=False)
    compare = works.add_parser("compare", help="say which domains are equal up to names, and what others share")
    compare.add_argument("domains", nargs="+", metavar="DOMAIN")
    compare.add_argument("--with", nargs="+", default=(), dest="references", metavar="DOMAIN",
                         help="what they are compared with (each other)")  # fmt: skip
    compare.add_argument("--json", action="store_true", help="every pair as one JSON list")
    compare.set_defaults(work=run_compare)


def run_generate(arguments: argparse.Namespace) -> int:
    """Invent what the command line asks for; return 0."""
    for option, value in (("--n", arguments.n), ("--jobs", arguments.jobs)):
        if value < 1:
            raise BadInputError("nothing to do", where=option, got=str(value), expected="at least 1")
    given = {} if arguments.grid is None else read_yaml(arguments.grid)
    config = build_model(InventionConfig, given, where=str(arguments.grid))
    sources = tuple(load_domain(source).reference for source in arguments.sources)
    job = InventionJob(arguments.n, arguments.seed, config, sources, arguments.allow_known)
    with progress_bar(arguments.n, "inventing", unit="domain") as bar:

        def show(candidate: Candidate) -> None:
            if candidate.refusal is None:
                bar.update()

        selection = invent_domains(job, arguments.out, n_workers=arguments.jobs, decided=show)
    print("\n\n".join(tables_of(selection)))
    print(f"\ndomains: {arguments.out}")
    return 0


def tables_of(selection: Selection) -> list[str]:
    """Return the tables of what was taken by size, and of what was refused."""
    n_taken, n_refused = len(selection.taken), selection.refusals.total()
    sizes = [
        [f"{line.replace('_', ' ')} {least} to {most}", str(selection.counts[line, (least, most)]),
         str(selection.share_of(line))]
        for line in type(selection.config.grid).model_fields
        for least, most in getattr(selection.config.grid, line)
    ]  # fmt: skip
    refusals = [[str(reason), str(count)] for reason, count in selection.refusals.most_common()]
    return [
        text_table(("size", "domains", "at most"), sizes),
        text_table((f"{n_taken} of {n_taken + n_refused} candidates taken; refused", "candidates"), refusals),
    ]


def run_compare(arguments: argparse.Namespace) -> int:
    """Print what domains share; return whether one is another in other words."""
    domains = forms_of(arguments.domains)
    references = forms_of(arguments.references)
    pairs = pairs_of(domains, references)
    if arguments.json:
        print(json.dumps([asdict(pair) for pair in pairs], indent=2))
    else:
        print("\n".join(lines_of(pairs)))
    return 1 if any(pair.is_equal for pair in pairs) else 0


def forms_of(names: Iterable[str]) -> list[DomainForms]:
    """Return the forms of domains, of those in a folder of domain folders too."""
    folders = [folder for name in names for folder in _folders_of(name)]
    with progress_bar(len(folders), "reading", unit="domain") as bar:
        found = []
        for folder in folders:
            loaded = load_domain(folder)
            found.append(DomainForms.of(loaded.name, loaded.domain))
            bar.update()
    return found


def _folders_of(name: str) -> list[str]:
    """Return what to load: the name itself, or the domain folders in it."""
    path = Path(name)
    below = sorted(str(found.parent) for found in path.glob(f"*/{SETTINGS}")) if path.is_dir() else []
    return below if below and not (path / SETTINGS).is_file() else [name]


def pairs_of(domains: Sequence[DomainForms], references: Sequence[DomainForms]) -> list[Shared]:
    """Return every pair, the nearest first; without references, of each two of the domains."""
    if references:
        pairs = [shared(domain, reference) for domain in domains for reference in references]
    else:
        pairs = [shared(second, first) for number, first in enumerate(domains) for second in domains[number + 1 :]]
    return sorted(pairs, key=lambda pair: (not pair.is_equal, -pair.share, pair.name, pair.reference))


def lines_of(pairs: Sequence[Shared]) -> list[str]:
    """Return the pairs for people: each reference with its nearest, then the pairs that share something."""
    if not pairs:
        return ["nothing to compare: one domain, and none to compare it with"]
    rows = [
        [name, str(len(own)), str(sum(pair.is_equal for pair in own)), str(sum(pair.n_shared > 0 for pair in own)),
         own[0].name, f"{own[0].share:.0%}"]
        for name, own in grouped(pairs, lambda pair: pair.reference).items()
    ]  # fmt: skip
    header = ("compared with", "domains", "equal", "share an action", "nearest", "actions shared")
    near = [pair for pair in pairs if pair.is_equal or pair.n_shared]
    shown = [[pair.name, pair.reference, "yes" if pair.is_equal else "no", str(pair.n_shared), f"{pair.share:.0%}"]
             for pair in near[:MOST_PAIRS]]  # fmt: skip
    lines = [text_table(header, rows[:MOST_PAIRS])]
    if shown:
        lines += ["", text_table(("domain", "compared with", "equal", "actions shared", "of its actions"), shown)]
    if len(near) > MOST_PAIRS:
        lines.append(f"and {len(near) - MOST_PAIRS} pairs more that share something")
    return lines

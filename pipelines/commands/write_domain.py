"""The command `domains write`: from a user's demonstrations to a PDDL domain that a model wrote, mended and pruned.

The loop is `plansmith.judging.domain_repair`; who answers is a model folder or a server, as for `formalise`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from pipelines.stages.domain_writing import keeps
from pipelines.trials.command_generator import command_generator
from pipelines.trials.options import (
    LEAST,
    add_endpoint_options,
    add_policy_options,
    check_least,
    is_address,
    planner_of,
)
from pipelines.trials.text_policy import text_policy
from plansmith.config.domain_writing import WritingConfig
from plansmith.config.generation import SamplingConfig
from plansmith.config.loading import build_model
from plansmith.console import exit_code_of, set_up_logging
from plansmith.data.demonstration_files import read_demonstrations
from plansmith.data.storage import atomic_file, storage_errors
from plansmith.errors import BadInputError, PlansmithError
from plansmith.generation import Generator
from plansmith.judging.domain_agreement import PlannedProblem, domain_agreement, planned
from plansmith.judging.domain_checks import DomainChecks, Scene, adopted, scene_problem
from plansmith.judging.domain_repair import WrittenDomain, best_domain, judged_answers, next_question
from plansmith.layout import printable, text_table
from plansmith.pddl.cases import read_text
from plansmith.pddl.model import Conjunction, Domain, Literal, Problem
from plansmith.pddl.parser import parse_domain
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.planners import FastDownward
from plansmith.planners.batch import proving
from plansmith.problems.demonstrations import Demonstrations
from plansmith.problems.pruning import prune, size_of
from plansmith.problems.simulator import Simulator
from plansmith.stages import row_seed

EPILOG = """exit code: 0 the domain passes all checks; 1 it does not and the best is written, or failure; 2 bad input.

examples:
  plansmith domains write demos.jsonl --policy my-model --out my-domain
      a model folder, run by the engine built in
  plansmith domains write demos.jsonl --policy http://localhost:8000/v1 --out my-domain --compare domain.pddl
      a model behind an OpenAI-compatible server; the domain is compared with one that is known to be right

docs/self-criteach.md says how demonstrations are written, and what is checked."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write a domain; return 0 when it passes every check, 1 when not or failed, 2 for bad input."""
    arguments = _parser().parse_args(argv)
    set_up_logging()
    return exit_code_of(lambda: _write_domain(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plansmith domains write",
        description="Let a policy write the PDDL domain of demonstrations, hand it back with what is wrong with it, "
        "and drop what it can do without.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("demonstrations", type=Path, metavar="DEMOS.jsonl", help="skills, predicates and recorded attempts")
    add("--policy", required=True, metavar="FOLDER_OR_URL", help="a Hugging Face model folder, or the address of an "
        "OpenAI-compatible server, such as http://localhost:8000/v1")  # fmt: skip
    add("--out", required=True, type=Path, metavar="FOLDER", help="gets domain.pddl, settings.yaml and the scenes of "
        "the demonstrations, from which other commands draw problems")  # fmt: skip
    add("--repair-turns", type=int, default=5, metavar="N", help="how often the domain is handed back (default: 5)")
    add("--candidates", type=int, default=4, metavar="N", help="answers to each question (default: 4)")
    add("--no-prune", action="store_true", help="keep what the domain could do without")
    add("--compare", type=Path, metavar="D.pddl", help="a domain that is known to be right; no prompt holds it")
    add_policy_options(parser.add_argument_group("answers, planner and engine"))
    add_endpoint_options(parser.add_argument_group("with --policy URL"))
    parser.set_defaults(concurrency=4, temperature=0.6, max_new_tokens=4096)
    return parser


def _write_domain(arguments: argparse.Namespace) -> int:
    check_least(arguments, {**LEAST, "repair_turns": 0, "candidates": 1})
    demonstrations = read_demonstrations(arguments.demonstrations)
    compare: Path | None = arguments.compare
    reference = None if compare is None else parse_domain(read_text(compare), source=str(compare))
    if arguments.out.exists() and (not arguments.out.is_dir() or any(arguments.out.iterdir())):
        raise BadInputError("no empty folder", where=str(arguments.out), cure="name another --out")
    if not demonstrations.n_refused:
        print("warning: no refused attempts: nothing tells what must not be possible", file=sys.stderr)
    given = {"candidates": arguments.candidates, "turns": arguments.repair_turns, "temperature": arguments.temperature,
             "max_new_tokens": arguments.max_new_tokens}  # fmt: skip
    config = build_model(WritingConfig, given, where="the command line")
    folder = None if is_address(arguments.policy) else text_policy(arguments.policy)
    asked = {str(arguments.demonstrations): next_question(demonstrations, None, **_shown(config))}
    with (  # a folder's engine has room for a prompt, the domain handed back, and an answer
        command_generator(arguments, folder, asked, room=2 * config.max_new_tokens) as (generator, *_),
        FastDownward(planner_of(arguments)) as planner,
    ):
        checks = DomainChecks(demonstrations, _scenes(demonstrations, reference), proving(planner))
        found = _repaired(generator, checks, config, arguments.seed)
        if found.checked.domain is None:
            raise PlansmithError("no answer holds a domain that can be read", got=found.completion[:200],
                                 cure="ask a model that knows PDDL, or allow longer answers")  # fmt: skip
        domain, dropped = found.checked.domain, tuple[str, ...]()
        if not arguments.no_prune:
            pruned = prune(domain, keeps("checks", checks, domain))
            domain, dropped = pruned.domain, pruned.dropped
        references = (
            [] if reference is None else planned(reference, _starts(demonstrations, reference), proving(planner))
        )
    _save(domain, demonstrations, arguments.out)
    _say(found, domain, dropped, arguments.out)
    if reference is not None:
        _say_agreement(reference, domain, references, arguments.seed)
    return 0 if found.checked.is_faultless else 1


def _shown(config: WritingConfig) -> dict[str, int]:
    return {"most_attempts": config.attempts_shown, "most_faults": config.faults_shown}


def _repaired(generator: Generator, checks: DomainChecks, config: WritingConfig, seed: int) -> WrittenDomain:
    """Return the best domain, after telling of each turn.

    Raises:
        PlansmithError: a request failed.
    """
    best: WrittenDomain | None = None
    sampling = SamplingConfig(n=config.candidates, temperature=config.temperature, max_new_tokens=config.max_new_tokens)
    for turn in range(config.turns + 1):
        question = next_question(checks.demonstrations, best, **_shown(config))
        seeds = [row_seed(seed, "domain", turn, k) % 2**31 for k in range(config.candidates)]
        [(_, completions)] = generator.complete([question], sampling, seeds=seeds)
        if fault := next((item.fault for item in completions if item.fault), None):
            raise PlansmithError("a request failed", got=fault, cure="see to the server and give the command again")
        answers = judged_answers((item.text or "" for item in completions), checks)
        best = best_domain([*([best] if best else []), *answers])
        assert best is not None, "there are answers"
        print(printable(f"{'repair ' + str(turn) if turn else 'first answer'}: {len(best.checked.faults)} faults"))
        for found in best.checked.faults[: config.faults_shown]:
            print(printable(f"  {found.words}"))
        if best.checked.is_faultless:
            break
    assert best is not None, "it was asked once at least"
    return best


def _starts(demonstrations: Demonstrations, domain: Domain) -> list[Problem]:
    """Return the scenes as they were before the first attempt, each with what it was in the end as its goal."""
    known = {schema.name for schema in domain.predicates}
    found = []
    for number, trajectory in enumerate(demonstrations.trajectories, 1):
        if not trajectory.attempts:
            continue
        first, last = trajectory.attempts[0].state, trajectory.attempts[-1]
        end = last.state if last.after is None else last.after
        goal = tuple(Literal(atom) for atom in sorted(end - first) if atom.predicate in known)
        init = tuple(atom for atom in sorted(first) if atom.predicate in known)
        scene = scene_problem(domain, trajectory)
        found.append(replace(scene, name=f"scene-{number}", init=init, goal=Conjunction(goal)))
    return found


def _scenes(demonstrations: Demonstrations, reference: Domain | None) -> tuple[Scene, ...]:
    """Return scenes in which plans can be run: where there is a domain known to be right, that is the robot."""
    if reference is None:
        return ()
    return tuple(Scene(problem, Simulator(reference, problem)) for problem in _starts(demonstrations, reference))


def _save(domain: Domain, demonstrations: Demonstrations, folder: Path) -> None:
    with storage_errors(folder.parent):
        (folder / "scenes").mkdir(parents=True, exist_ok=True)
        files = {"domain.pddl": print_domain(domain)}
        for problem in _starts(demonstrations, domain):
            files[f"scenes/{problem.name}.pddl"] = print_problem(adopted(domain, problem))
        settings = {"sampler": "walk", "walk": {"problems": "scenes"}, "levels": {"scenes": {}}}
        files["settings.yaml"] = yaml.safe_dump(settings)
        for name, text in files.items():
            with atomic_file(folder / name) as file:
                file.write(text.encode())


def _say(found: WrittenDomain, domain: Domain, dropped: Sequence[str], folder: Path) -> None:
    shares = zip(("transitions explained", "refusals kept", "scenes solved", "plans that run"),
                 found.checked.scores.shares, strict=True)  # fmt: skip
    rows = [[name, "-" if share is None else f"{share:.1%}"] for name, share in shares]
    assert found.checked.domain is not None
    rows += [["literals as written", str(size_of(found.checked.domain))], ["literals kept", str(size_of(domain))]]
    print("\n" + text_table(("the domain", ""), rows))
    if dropped:
        print(printable("dropped: " + "; ".join(dropped)))
    print(f"domain: {folder}")


def _say_agreement(reference: Domain, domain: Domain, problems: Sequence[PlannedProblem], seed: int) -> None:
    found = domain_agreement(reference, domain, problems, n_steps=20, rng=random.Random(row_seed(seed, "agreement")))
    rows = [
        ["applicable actions", _share(found.applicable_precision), _share(found.applicable_recall)],
        ["effects", _share(found.effect_precision), _share(found.effect_recall)],
    ]
    print(text_table((f"compared in {found.n_states} states", "precision", "recall"), rows))
    print(f"plans of the reference that are valid in the domain: {_share(found.reference_plans)}")


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"

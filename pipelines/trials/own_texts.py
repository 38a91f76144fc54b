"""Texts about problems of the user's own: read from files or written, answered by a policy, judged, handed back.

Each of these is a durable stage, whoever the policy is (`text_policy`), as for plans (`own_problems`); those that ask,
judge and hand back are the stages of `nl_pddl_bench`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from actors.formaliser import domain_of
from pipelines.stages import formalising
from pipelines.stages.formalising import RepairSettings, TextTrialSettings
from pipelines.stages.generating import ASKING, GENERATION
from pipelines.stages.given import GivenTexts, given_stages, given_text, planbench_texts, problems_stage
from pipelines.stages.graph import Graph
from pipelines.stages.texts import TextSettings, write_texts
from pipelines.trials.own_problems import GIVEN_ARM, read_problems, some
from plansmith.config.formalisation import FormalisationConfig
from plansmith.config.planner import PlannerConfig
from plansmith.data.artifacts import StageKind
from plansmith.data.rows import ProblemRow, TextRow
from plansmith.errors import BadInputError
from plansmith.pddl.cases import read_text
from plansmith.problems.library import PHRASES, SETTINGS, PlanningDomain, load_domain
from plansmith.stages import Stage, StageContext


class WritingSettings(TextSettings):
    """How texts about the user's problems are written."""

    digest: str
    """Of the domain's folder, whose phrases they are written with."""


@dataclass(frozen=True)
class OwnTexts:
    """Problems, and how they are said: in texts that are there, their plans not yet known, or in some to be written."""

    problems: Sequence[ProblemRow]
    saying: Sequence[TextRow] | WritingSettings


class GivenTrialSettings(TextTrialSettings):
    """Which texts a policy of no run answers."""

    policy: str = ""
    """Key of its weights; none behind an endpoint."""


class GivenRepairSettings(RepairSettings):
    """How answers are handed back to a policy of no run."""

    policy: str = ""
    """Key of its weights; none behind an endpoint."""


@dataclass(frozen=True)
class TextTrial:
    """How a policy answers texts, and who it is: None behind an endpoint."""

    asking: GivenTrialSettings
    repair: GivenRepairSettings
    policy: Any


# --- reading


def read_own_texts(arguments: argparse.Namespace, texts: FormalisationConfig, planner: PlannerConfig) -> OwnTexts:
    """Return the problems that a command names, and how they are said.

    Raises:
        BadInputError: a mistake in a file; a text that is lacking or empty; a domain without phrases where texts are to
            be written; a folder that is none of PlanBench.
    """
    if arguments.planbench is not None:
        given = planbench_texts(arguments.planbench, texts)
        return OwnTexts(given.problems, given.texts)
    reference = _reference_of(arguments.domain)
    if arguments.texts is None:
        loaded = _phrased(reference, arguments.domain)
        saying = WritingSettings(
            texts=texts,
            planner=planner,
            object_names=tuple(arguments.object_names),
            domains={loaded.domain.name: loaded.reference},
            digest=loaded.digest(),
        )
        return OwnTexts(_problems(reference, arguments), saying)
    rows = _problems(reference, arguments)
    paths = [arguments.texts / f"{row.problem_id}.txt" for row in rows]
    if lacking := [path.name for path in paths if not path.is_file()]:
        raise BadInputError("problems without a text", where=str(arguments.texts), got=f"no {some(lacking)}",
                            expected="NAME.txt for each NAME.pddl of --problems",
                            cure="write them, or leave out --texts where texts are to be written")  # fmt: skip
    said = [given_text(row, reference, read_own_text(path), texts) for row, path in zip(rows, paths, strict=True)]
    return OwnTexts(rows, said)


def read_own_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        BadInputError: no such file, or nothing in it.
    """
    text = read_text(path)
    if not text.strip():
        raise BadInputError("an empty text", where=str(path), got=f"{len(text)} characters of white space",
                            expected="a problem described in words", cure="write what there is, how it is at the start "
                            "and what is wanted")  # fmt: skip
    return text


def _problems(reference: str, arguments: argparse.Namespace) -> list[ProblemRow]:
    given = read_problems(domain_of(reference), arguments.problems, known=None, seed=arguments.seed)
    return [item.row for item in given]


def _reference_of(domain: Path) -> str:
    """Return what a domain is loaded by: its file, or where it has none a folder or a name of the library."""
    return str(domain.resolve()) if domain.is_file() else load_domain(str(domain)).reference


def _phrased(reference: str, domain: Path) -> PlanningDomain:
    """Return a domain with how it is said; that of a file is the folder's that it lies in.

    Raises:
        BadInputError: it has no phrases.
    """
    path = Path(reference)
    loaded = _around(path) if path.is_file() else load_domain(reference)
    if loaded is None or loaded.phrases is None:
        raise BadInputError(
            "a domain without phrases.yaml where texts are to be written", where=str(domain),
            got=f"no domain folder with {PHRASES}" if loaded is None else f"no {PHRASES} in {loaded.folder}",
            expected="the name of a domain of the library, or a domain folder with phrases",
            cure="give texts of the problems: --texts DIR, or write the phrases (docs/representations.md)",
        )  # fmt: skip
    return loaded


def _around(path: Path) -> PlanningDomain | None:
    """Return the domain folder whose domain is in a file; None where there is none."""
    if not (path.parent / SETTINGS).is_file():
        return None
    loaded = load_domain(str(path.parent))
    return loaded if loaded.folder / loaded.settings.domain_file == path else None


# --- stages


def text_stages(graph: Graph, own: OwnTexts, planner: PlannerConfig) -> dict[str, Stage[Any]]:
    """Return the stages of the problems and of their texts with the plans of the references, after adding them."""
    if not isinstance(own.saying, WritingSettings):
        return given_stages(graph, GivenTexts(own.problems, own.saying), planner, {})
    data = {"problems": problems_stage(graph, own.problems)}
    return {**data, "texts": graph.stage("write_texts", write_texts, own.saying, data)}


def trial_stages(graph: Graph, data: dict[str, Stage[Any]], trial: TextTrial) -> None:
    """Add the stages in which a policy answers texts and gets back what has no plan."""
    roots = ASKING if trial.policy is None else GENERATION
    told: dict[str, Any] = {"kind": StageKind.GENERATES, "code_roots": roots}
    run = partial(_try_texts, policy=trial.policy)
    tried = graph.stage("try_texts", run, trial.asking, {"texts": data["texts"]}, **told)
    told = {"kind": StageKind.JUDGES_TEXTS, "labels": {"arm": GIVEN_ARM}}
    given = {"rollouts": tried, **data}
    judged = graph.stage("judge_texts", formalising.judge_texts, trial.repair.judging, given, **told)
    if trial.repair.turns:
        labels = {"arm": GIVEN_ARM, "feedback": trial.repair.feedback}
        told = {"kind": StageKind.REPAIRS, "labels": labels, "code_roots": roots}
        graph.stage("repair", partial(_repair, policy=trial.policy), trial.repair, {"judged": judged, **data}, **told)


def _try_texts(context: StageContext[TextTrialSettings], policy: Any) -> None:
    formalising.try_texts(_lent(context, policy))


def _repair(context: StageContext[RepairSettings], policy: Any) -> None:
    formalising.repair(_lent(context, policy))


def _lent(context: StageContext[Any], policy: Any) -> StageContext[Any]:
    """Return what a stage gets, with a policy that no stage made among its inputs."""
    return replace(context, inputs={**context.inputs, "policy": policy})

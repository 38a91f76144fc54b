#!/usr/bin/env python3
"""PDDL-INSTRUCT (arXiv 2509.13351): instruction tuning with logical chains of thought and a validator's feedback.

`pddl_instruct` is algorithm 1 as a list of durable stages; running the file, or ``plansmith run pddl_instruct``, runs
them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # found from any folder, as `ray job submit` starts it
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.parts import evaluation_stages, feedback_stages, problem_stages, training_stages
from pipelines.parts.command import run_command
from plansmith.config.models import PddlInstructConfig
from plansmith.stages import Stage


def pddl_instruct(config: PddlInstructConfig) -> list[Stage]:
    """Return the stages of algorithm 1, in order; each names what it reads and every setting it depends on."""
    stages: list[Stage] = []

    def stage(name: str, run: Callable[[Any], None], settings: dict[str, Any], **inputs: Stage) -> Stage:
        stages.append(Stage(name=name, run=run, settings=settings, inputs=inputs, seed=config.seed))
        return stages[-1]

    def evaluate(arm: str, policy: Stage, iteration: int) -> None:
        test = {
            "rendering": config.rendering,
            "evaluation": config.evaluation.sampling(),
            "policy": config.policy.dtype,
        }
        run = partial(evaluation_stages.try_test_problems, iteration=iteration)
        tried = stage(f"try_{arm}", run, test, policy=policy, problems=problems, plans=plans)
        stage(f"judge_{arm}", feedback_stages.judge, {}, rollouts=tried, problems=problems)

    problems = stage(
        "sample_problems",
        problem_stages.sample_problems,
        {"problems": config.problems, "pddl": problem_stages.pddl_digest(config.problems)},
    )
    plans = stage("synthesize_plans", problem_stages.synthesize_plans, {"planner": config.planner}, problems=problems)
    data = {"problems": problems, "plans": plans}
    texts = {"examples": config.examples, "rendering": config.rendering}
    corrupted = stage("corrupt_plans", problem_stages.corrupt_plans, texts, **data)
    examples = stage("write_chains", problem_stages.write_chains, texts, **data, corrupted=corrupted)
    untrained = stage("initial_policy", training_stages.initial_policy, {"model": config.model}, examples=examples)
    evaluate("untrained", untrained, 0)

    # Phase 1: initial instruction tuning
    training = {"trainer": config.trainer.numerics()}
    settings = {"phase1": config.phase1, **training}
    policy = stage("phase1", training_stages.phase1, settings, policy=untrained, examples=examples)
    evaluate("phase1", policy, 0)

    # Phase 2: chain-of-thought instruction tuning
    loop = config.phase2
    for t in range(1, loop.eta + 1):
        rolled_out = stage(
            f"roll_out_{t}",
            partial(feedback_stages.roll_out, iteration=t),
            {"rollouts": loop.sampling(), "rendering": config.rendering},
            policy=policy,
            **data,
        )
        verdicts = stage(f"judge_{t}", feedback_stages.judge, {}, rollouts=rolled_out, problems=problems)
        replans = stage(
            f"replan_{t}",
            feedback_stages.replan,
            {"planner": config.planner, "is_on": loop.continuation_renamings > 0},
            policy=policy,
            rollouts=rolled_out,
            **data,
        )
        datasets = stage(
            f"build_datasets_{t}",
            feedback_stages.build_datasets,
            {"loop": loop.corrections(), "losses": loop.losses},
            policy=policy,
            rollouts=rolled_out,
            verdicts=verdicts,
            replans=replans,
            **data,
        )
        reasoned = stage(
            f"stage1_{t}",
            training_stages.stage1,
            {"stage1": loop.stage1, "losses": loop.losses, **training},
            policy=policy,
            datasets=datasets,
            examples=examples,
        )
        policy = stage(
            f"stage2_{t}",
            training_stages.stage2,
            {"stage2": loop.stage2, "losses": loop.losses, **training},
            policy=reasoned,
            datasets=datasets,
            examples=examples,
        )
        evaluate(f"iteration_{t}", policy, t)
    return stages


def arms(config: PddlInstructConfig) -> dict[str, tuple[str, str]]:
    """Return each arm of the report with the stage of its policy and the name its evaluation runs under."""
    found = {"untrained": ("initial_policy", "untrained"), "phase1": ("phase1", "phase1")}
    found |= {f"iteration_{t}": (f"stage2_{t}", f"iteration_{t}") for t in range(1, config.phase2.eta + 1)}
    return found | {"final": found[f"iteration_{config.phase2.eta}"]}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return 0 when done, 1 when it failed, 2 for bad input."""
    return run_command("pddl_instruct", pddl_instruct, arms, argv)


if __name__ == "__main__":
    sys.exit(main())

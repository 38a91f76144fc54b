"""The engines that hold one policy, as one stream of completions for `plansmith.learning.codec.EngineGenerator`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from plansmith.config.generation import SamplingConfig
from plansmith.errors import PlansmithError
from plansmith.generation import Generation, seeds_by_conversation


@dataclass(frozen=True)
class Engines:
    """Engines with equal weights; they share the prompts, and seeds make the cut irrelevant.

    Attributes:
        actors: handles of `actors.policy.PolicyActor`.
        policy_version: the weights that they are to answer with.
        streamed: see `pipelines.run.ray_session.RaySession.streamed`.
    """

    actors: Sequence[Any]
    policy_version: str
    streamed: Callable[[Sequence[Any]], Iterator[tuple[int, Any]]]

    def stream(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: SamplingConfig,
        *,
        seeds: Sequence[int],
        description: str | None,
    ) -> Iterator[tuple[int, list[Generation]]]:
        """Yield the number of each prompt with its completions, as they come.

        Raises:
            LostWorkerError: an engine died for good.
            PlansmithError: an engine answered with other weights than those loaded, or not to every prompt.
        """
        count, groups = len(self.actors), seeds_by_conversation(seeds, len(prompts), sampling.n)
        streams = [
            actor.generate.remote(
                prompts[number::count],
                sampling,
                seeds=[seed for group in groups[number::count] for seed in group],
                description=description,
            )
            for number, actor in enumerate(self.actors)
        ]
        n_answered = [0] * count
        for engine, group in self.streamed(streams):
            self._check(group, sampling.n, engine)
            yield engine + n_answered[engine] * count, group
            n_answered[engine] += 1
        for engine, n in enumerate(n_answered):
            if n != len(groups[engine::count]):
                raise _incomplete(engine, f"{n} answers", f"{len(groups[engine::count])}, one for each prompt")

    def _check(self, group: Sequence[Generation], n: int, engine: int) -> None:
        if len(group) != n:
            raise _incomplete(engine, f"{len(group)} completions of a prompt", str(n))
        for generation in group:
            if generation.policy_version != self.policy_version:
                raise PlansmithError("an engine answered with other weights", got=generation.policy_version,
                                     expected=self.policy_version)  # fmt: skip


def _incomplete(engine: int, got: str, expected: str) -> PlansmithError:
    return PlansmithError("an engine did not answer every prompt", where=f"engine {engine}", got=got, expected=expected,
                          cure="give the command again; finished rollouts are kept")  # fmt: skip

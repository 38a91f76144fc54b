"""The planning service on Ray Serve: what runs where, and how many of it.

Three deployments: the front speaks HTTP, reads PDDL and judges plans; the policy holds a vLLM engine; the planner holds
a warm Fast Downward. `build_app` takes plain settings, for ``serve run cluster.service.app:build_app policy=FOLDER``
and for a RayService's ``serveConfigV2``. Not here: planning itself (`planning`) and HTTP (`http`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from cluster.service.args import EngineArgs, LimitArgs, PlannerArgs, ReplicaArgs, ServeArgs
from cluster.service.inflight import InFlightEngine
from cluster.service.lookout import Lookout
from cluster.service.planning import PlanningService, ServiceSettings, ServiceUnavailableError
from cluster.service.view import PolicyCard
from plansmith.config.basics import narrowed
from plansmith.config.loading import build_model
from plansmith.config.planner import PlannerConfig
from plansmith.errors import PlansmithError
from plansmith.generation import Completion, Conversation, FinishReason, Generation
from plansmith.planners import FastDownward, PlannerResult, PlannerStatus

logger = logging.getLogger(__name__)

KILL_GRACE_S = 0.5
"""Wall-clock seconds beyond a request's limit after which the planner's processes are killed."""
REFUSALS = 64
"""Requests that a front takes beyond those it works on or queues, to refuse them or to say how it is."""
HEALTH_PERIOD_S, HEALTH_LIMIT_S = 5.0, 30.0
READY_LIMIT_S = 2.0
CONTROLLER = "controller"
"""What is waited for while nobody says which replicas there are."""


class Policy:
    """One vLLM engine; a prompt joins those under way, and leaves when it is answered or nobody waits for it."""

    def __init__(self, args: EngineArgs) -> None:
        from actors.policy import PolicyActor
        from cluster.service.model import ServedModel
        from plansmith.learning.hub import resolve_model

        self._model = ServedModel.read(resolve_model(str(args.policy)), args)
        folder, version = str(self._model.folder), self._model.card.policy_version
        start = partial(
            PolicyActor, folder, version, settings=self._model.settings, seed=args.seed, lora_rank=self._model.lora_rank
        )
        self._engine = InFlightEngine(start, self._model.card.sampling)

    async def describe(self) -> PolicyCard:
        """Return what is known of the policy."""
        return self._model.card

    async def complete(self, messages: Conversation, seed: int) -> Completion:
        """Return the answer to a conversation."""
        codec, none = self._model.codec, Generation((), (), FinishReason.NO_ROOM, self._model.card.policy_version)
        ids = codec.encode(messages)
        return codec.completion(ids, await self._engine.ask(ids, seed) if codec.has_room(ids) else none, seed=seed)

    def check_health(self) -> None:
        """Raise once the engine has failed; Ray Serve then replaces the replica."""
        if self._engine.failure is not None:
            raise RuntimeError("the engine failed") from self._engine.failure


class Planner:
    """One warm Fast Downward, for one request at a time; a cancelled request ends its search."""

    def __init__(self, settings: PlannerConfig) -> None:
        self._settings = settings
        self._planner = FastDownward(settings)

    async def solve(self, domain_pddl: str, problem_pddl: str, time_limit_s: float) -> PlannerResult:
        """Return the outcome of one problem."""
        limits = {"time_limit_s": time_limit_s, "kill_after_s": time_limit_s + KILL_GRACE_S}
        limit = self._settings.model_copy(update=limits)
        planner = self._planner
        try:
            return await asyncio.to_thread(planner.solve_with, limit, domain_pddl, problem_pddl)
        except asyncio.CancelledError:
            self._planner = FastDownward(self._settings)  # a fraction of a second, and the place is free again
            asyncio.get_running_loop().run_in_executor(None, planner.close)
            raise
        except PlansmithError as error:
            return PlannerResult(PlannerStatus.CRASHED, None, None, 0.0, message=str(error))


class RemotePolicy:
    """The policy behind a handle."""

    def __init__(self, handle: DeploymentHandle[Any], card: PolicyCard) -> None:
        self._handle, self.card = handle, card

    async def complete(self, messages: Conversation, *, seed: int) -> Completion:
        """Return the answer to a conversation; an engine that came back with other weights is asked who it is."""
        completion: Completion = await _answer_of(self._handle.complete.remote(messages, seed), "policy")
        if completion.policy_version != self.card.policy_version:
            self.card = await _answer_of(self._handle.describe.remote(), "policy")
        return completion


class RemotePlanner:
    """The planners behind a handle."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._handle = handle

    async def solve(self, domain_pddl: str, problem_pddl: str, *, time_limit_s: float) -> PlannerResult:
        """Return the outcome of one problem."""
        result: PlannerResult = await _answer_of(
            self._handle.solve.remote(domain_pddl, problem_pddl, time_limit_s), "planner"
        )
        return result


async def _answer_of(response: Any, whose: str) -> Any:
    """Return the answer of a deployment; cancelled, the call is withdrawn there as well.

    Raises:
        ServiceUnavailableError: no replica answers, or it failed.
    """
    try:
        return await response
    except asyncio.CancelledError:
        response.cancel()
        raise
    except RayTaskError as error:
        logger.exception("the %s failed", whose)
        raise ServiceUnavailableError(f"the {whose} failed") from error
    except (RayError, RayServeException) as error:
        raise ServiceUnavailableError(f"the {whose} cannot be reached", got=type(error).__name__) from error


@serve.ingress()
class Front:
    """The HTTP side; ready as soon as it knows the policy."""

    def __init__(self, args: ServeArgs, planner: DeploymentHandle[Any], policy: DeploymentHandle[Any] | None) -> None:
        from cluster.service.metrics import ServiceMetrics

        self.limits, self.metrics = narrowed(args, LimitArgs), ServiceMetrics()
        self._settings = ServiceSettings(policy_time_share=args.policy_time_share, seed=args.seed)
        self._planner, self._policy_handle = RemotePlanner(planner), policy
        self._policy: RemotePolicy | None = None
        self._lookout = Lookout(
            _without_replica, limit_s=READY_LIMIT_S, otherwise=[CONTROLLER], failures=(RayError, RayServeException)
        )
        self._meeting = asyncio.get_running_loop().create_task(self._meet_policy())

    def __serve_build_asgi_app__(self) -> Any:  # the name that Ray Serve calls
        from cluster.service.http import make_api

        return make_api(self)

    async def _meet_policy(self) -> None:
        while self._policy_handle is not None and self._policy is None:
            try:
                card = await _answer_of(self._policy_handle.describe.remote(), "policy")
                self._policy = RemotePolicy(self._policy_handle, card)
            except ServiceUnavailableError as error:
                logger.warning("%s; asking again", error.message)
                await asyncio.sleep(1)

    def service(self) -> PlanningService:
        """Return the service."""
        if self._policy_handle is not None and self._policy is None:
            raise ServiceUnavailableError("the policy is still starting")
        return PlanningService(self._planner, self._policy, settings=self._settings)

    def model(self) -> Mapping[str, Any]:
        """Return what clients may know of the policy."""
        if self._policy is None:
            return {}
        card = self._policy.card
        drawn = card.sampling.model_dump(include={"max_new_tokens", "temperature", "top_p", "top_k"})
        known = {name: getattr(card, name) for name in ("policy_version", "prompting", "max_model_len")}
        return {**known, **drawn, "is_word_level": card.words is not None}

    async def waiting_for(self) -> list[str]:
        """Return the deployments without a running replica, and the policy while nothing is known of it.

        While the head is away its controller answers nobody, for minutes.
        """
        missing = ["policy"] if self._policy_handle is not None and self._policy is None else []
        return sorted({*missing, *await self._lookout.answer()})

    def exported_metrics(self) -> str:
        """Return the metrics in Prometheus' text format."""
        from cluster.service.metrics import exported_metrics

        return exported_metrics()


def _without_replica() -> list[str]:
    app = serve.status().applications.get(serve.get_replica_context().app_name)
    if app is None:
        return [CONTROLLER]
    return [name for name, found in app.deployments.items() if "RUNNING" not in found.replica_states]


def build_app(args: dict[str, Any]) -> serve.Application:
    """Return the service as a Ray Serve application.

    Args:
        args: fields of `ServeArgs`, as texts or values.

    Raises:
        ConfigError: an unknown setting, or one out of bounds.
    """
    return bind_app(build_model(ServeArgs, args, where="build_app"))


def bind_app(args: ServeArgs) -> serve.Application:
    """Return the application for settings that are checked."""
    replicas, limits = narrowed(args, ReplicaArgs), narrowed(args, LimitArgs)
    planner = _deployment(
        Planner,
        "planner",
        max_ongoing_requests=1,
        ray_actor_options={"num_cpus": replicas.cpus_per_planner},
        **_scaling(replicas.planners, replicas.max_planners, target=1),
    ).bind(_planner_settings(narrowed(args, PlannerArgs)))
    policy = None if args.policy is None else _policy(args, replicas, limits)
    front = _deployment(
        Front,
        "front",
        num_replicas=replicas.fronts,
        max_ongoing_requests=limits.max_concurrent + limits.max_queued + REFUSALS,
        max_queued_requests=REFUSALS,
        backpressure_config={"retry_after_s": 1},
        ray_actor_options={"num_cpus": replicas.cpus_per_front},
    )
    return front.bind(args, planner, policy)


def _policy(args: ServeArgs, replicas: ReplicaArgs, limits: LimitArgs) -> serve.Application:
    """Return the engines; each takes every prompt there can be, so that none waits where it cannot join."""
    return _deployment(
        Policy,
        "policy",
        max_ongoing_requests=replicas.fronts * limits.max_concurrent + 1,
        ray_actor_options={"num_cpus": replicas.cpus_per_engine, "num_gpus": args.gpus_per_engine},
        **_scaling(replicas.engines, replicas.max_engines, target=args.prompts_per_engine),
    ).bind(narrowed(args, EngineArgs))


def _deployment(kind: type, name: str, **options: Any) -> serve.Deployment:
    health = {"health_check_period_s": HEALTH_PERIOD_S, "health_check_timeout_s": HEALTH_LIMIT_S}
    made: serve.Deployment = serve.deployment(name=name, **options, **health)(kind)  # type: ignore[arg-type]
    return made


def _scaling(least: int, most: int | None, *, target: int) -> dict[str, Any]:
    """Return a fixed number of replicas, or a range that Ray Serve chooses from by the requests each has."""
    if most is None or most == least:
        return {"num_replicas": least}
    return {"autoscaling_config": {"min_replicas": least, "max_replicas": most, "target_ongoing_requests": target}}


def _planner_settings(args: PlannerArgs) -> PlannerConfig:
    return PlannerConfig(search=args.planner_search, memory_limit_mib=args.planner_memory_mib)

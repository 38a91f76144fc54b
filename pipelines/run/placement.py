"""Where the resident actors of a run go: what each asks Ray for, and the placement group that holds the engines.

Ray Train places the ranks of the trainer (`pipelines.run.ranks`). On a CPU of one's own nothing is reserved: trainer
and engines take turns and share one memory. On GPUs they take turns too, on the same devices, or have their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plansmith import live
from plansmith.config.cluster import ClusterConfig
from plansmith.config.training import PolicyConfig, TrainerConfig
from plansmith.errors import ConfigError

if TYPE_CHECKING:
    from actors.ranks import Place

LOCAL_WAIT_S = 60.0
"""Longest wait for resources of a Ray of this run's own, to which no machine is added."""
CLUSTER_WAIT_S = 1800.0
"""The same for a cluster: time to add a machine and fetch its image."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What the actors of a run ask Ray for.

    Attributes:
        n_ranks: ranks of the trainer.
        n_engines: engines of the policy.
        rank: what one rank takes.
        engine: what one engine takes that has a device of its own.
        is_shared: engine i is on the device of rank i, or those of as many ranks as it takes devices, as long as there
            are ranks, and the two must not hold their memory at the same time.
        engine_devices: devices of an engine, all of one machine.
    """

    n_ranks: int
    n_engines: int
    rank: Mapping[str, float]
    engine: Mapping[str, float]
    is_shared: bool
    engine_devices: int = 1

    def engines(self) -> list[dict[str, float]]:
        """Return what each engine asks Ray for; not for a device, where it is that of the rank with its number."""
        n_shared = self.n_ranks // self.engine_devices if self.is_shared else 0
        without = {name: amount for name, amount in self.engine.items() if name != "GPU"}
        return [dict(without if number < n_shared else self.engine) for number in range(self.n_engines)]

    def hosts(self, ranks: Sequence[Place], number: int) -> Sequence[Place]:
        """Return the ranks on whose devices an engine is; none if it has devices of its own.

        Raises:
            ConfigError: they are on several machines.
        """
        found = ranks[number * self.engine_devices :][: self.engine_devices]
        if len(found) < self.engine_devices:
            return ()
        if len({place.node_id for place in found}) > 1:
            raise ConfigError(
                "the devices of one engine are on several machines", where=f"engine {number}",
                got=f"ranks {number * self.engine_devices} to {(number + 1) * self.engine_devices - 1}, each with one",
                expected=f"{self.engine_devices} devices of one machine (policy.tensor_parallel_size)",
                cure="set policy.placement=separate, or a tensor_parallel_size that divides the devices of a machine",
            )  # fmt: skip
        return found


def placement_of(trainer: TrainerConfig, policy: PolicyConfig, cluster: ClusterConfig) -> Placement:
    """Return where trainer and engines go.

    On a CPU `policy.placement` has no effect: all share one memory, from which an engine could give nothing back.
    Colocated, the device is the rank's as far as Ray knows, since Ray Train reserves for its workers alone; no device
    has two ranks or two engines, and the larger number of the two decides how many there are.

    Raises:
        ConfigError: engines are on the devices of ranks whose number may change.
    """
    is_shared = trainer.device != "cpu" and policy.placement == "colocated"
    if is_shared and trainer.min_ranks is not None:
        raise ConfigError(
            "engines cannot share devices with ranks that come and go", where="policy.placement",
            got=f"colocated, trainer.min_ranks={trainer.min_ranks}", expected="separate with trainer.min_ranks",
            cure="set policy.placement=separate, or leave trainer.min_ranks out",
        )  # fmt: skip
    gpus, n_devices = 0.0 if trainer.device == "cpu" else 1.0, policy.tensor_parallel_size
    return Placement(
        n_ranks=trainer.n_ranks,
        n_engines=policy.n_replicas,
        rank=_wanted(gpus, cluster.actor_cpus, cluster.trainer_resource),
        engine=_wanted(n_devices * gpus, cluster.actor_cpus, cluster.policy_resource),
        is_shared=is_shared,
        engine_devices=n_devices,
    )


def _wanted(gpus: float, cpus: float, resource: str | None) -> dict[str, float]:
    wanted = {"GPU": gpus, "CPU": cpus}
    return {name: amount for name, amount in wanted.items() if amount} | ({resource: 1.0} if resource else {})


@dataclass
class EngineGroup:
    """The placement group of the engines that reserve something of their own; made when first needed and kept."""

    placement: Placement
    is_local: bool
    _group: Any = None

    def options(self, ray: Any, number: int, ranks: Sequence[Place]) -> dict[str, Any]:
        """Return the options of the actor of an engine.

        Args:
            ray: the module, with a Ray running.
            number: of the engine.
            ranks: where the ranks are whose devices are shared; empty if none are.

        Raises:
            ConfigError: what it needs is not there in time.
        """
        if not self.placement.engine:
            return {"num_cpus": 0} if self.is_local else {"num_cpus": 0, "scheduling_strategy": _this_machine(ray)}
        wanted = self.placement.engines()
        n_hosted = len(ranks) // self.placement.engine_devices
        if hosts := self.placement.hosts(ranks, number):
            where = _on_node(hosts[0].node_id)
        else:
            where = _in_bundle(self._reserved(ray, wanted[n_hosted:]), number - n_hosted)
        mine = wanted[number]
        return {
            "num_cpus": mine.pop("CPU", 0),
            "num_gpus": mine.pop("GPU", 0),
            "resources": mine,
            "scheduling_strategy": where,
        }

    def release(self) -> None:
        """Let go of everything, and with it of the actors there."""
        from ray.util.placement_group import remove_placement_group

        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None

    def _reserved(self, ray: Any, bundles: list[dict[str, float]]) -> Any:
        from ray.util.placement_group import placement_group, remove_placement_group

        if self._group is not None:
            return self._group
        wanted = f"{len(bundles)} times {' and '.join(f'{amount:g} {name}' for name, amount in bundles[0].items())}"
        live.report(f"waiting for {wanted}")
        group = placement_group(bundles, strategy="PACK")
        if not group.wait(LOCAL_WAIT_S if self.is_local else CLUSTER_WAIT_S):
            remove_placement_group(group)
            offered = ray.cluster_resources()
            raise ConfigError(
                "Ray does not offer what the engines need",
                got=", ".join(f"{offered.get(name, 0):g} {name}" for name in bundles[0]) + " in all",
                expected=f"{wanted}, free",
                cure="lower trainer.n_ranks or policy.n_replicas, set policy.placement=colocated, or enlarge the "
                "cluster",
            )
        self._group = group
        return group


def _in_bundle(group: Any, number: int) -> Any:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)


def _on_node(node_id: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def _this_machine(ray: Any) -> Any:
    return _on_node(ray.get_runtime_context().get_node_id())

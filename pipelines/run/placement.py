"""Where the resident actors of a run go: what each asks Ray for, and the placement groups that hold it.

On a CPU of one's own nothing is reserved: trainer and engines take turns and share one memory. On GPUs they take turns
too, on the same devices, or have their own.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plansmith import live
from plansmith.config.cluster import ClusterConfig
from plansmith.config.training import PolicyConfig, TrainerConfig
from plansmith.errors import ConfigError

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
        engine: what one engine takes.
        is_shared: rank i and engine i are on one device and must not hold their memory at the same time.
    """

    n_ranks: int
    n_engines: int
    rank: Mapping[str, float]
    engine: Mapping[str, float]
    is_shared: bool

    def bundles(self, kind: str) -> list[dict[str, float]]:
        """Return what to reserve for the ``ranks`` or the ``engines``, one bundle each; the same for both if shared."""
        if self.is_shared:
            resources = {**self.rank, **self.engine, "GPU": 1.0}
            if "CPU" in self.rank:
                resources["CPU"] = self.rank["CPU"] + self.engine["CPU"]
            return [resources] * max(self.n_ranks, self.n_engines)
        count, wanted = (self.n_ranks, self.rank) if kind == "ranks" else (self.n_engines, self.engine)
        return [dict(wanted)] * count if wanted else []


def placement_of(trainer: TrainerConfig, policy: PolicyConfig, cluster: ClusterConfig) -> Placement:
    """Return where trainer and engines go.

    On a CPU `policy.placement` has no effect: all share one memory, from which an engine could give nothing back.
    Colocated, a rank and an engine take half a device each; no device has two ranks or two engines, and the larger
    number of the two decides how many there are.
    """
    is_shared = trainer.device != "cpu" and policy.placement == "colocated"
    gpus = 0.0 if trainer.device == "cpu" else 0.5 if is_shared else 1.0
    return Placement(
        n_ranks=trainer.n_ranks,
        n_engines=policy.n_replicas,
        rank=_wanted(gpus, cluster.actor_cpus, cluster.trainer_resource),
        engine=_wanted(gpus, cluster.actor_cpus, cluster.policy_resource),
        is_shared=is_shared,
    )


def _wanted(gpus: float, cpus: float, resource: str | None) -> dict[str, float]:
    wanted = {"GPU": gpus, "CPU": cpus}
    return {name: amount for name, amount in wanted.items() if amount} | ({resource: 1.0} if resource else {})


@dataclass
class PlacementGroups:
    """The placement groups of a run, each reserved when it is first needed and kept."""

    placement: Placement
    is_local: bool
    _groups: dict[str, Any] = field(default_factory=dict)

    def options(self, ray: Any, kind: str, number: int) -> dict[str, Any]:
        """Return the options of the actor of a rank or an engine.

        A group, because Ray would put two actors of half a GPU on one device.

        Args:
            ray: the module, with a Ray running.
            kind: ``ranks`` or ``engines``.
            number: of the actor among those of its kind.

        Raises:
            ConfigError: what they need is not there in time.
        """
        group = self._group(ray, kind)
        if group is None:
            return {"num_cpus": 0} if self.is_local else {"num_cpus": 0, "scheduling_strategy": _this_machine(ray)}
        wanted = dict(self.placement.rank if kind == "ranks" else self.placement.engine)
        return {
            "num_cpus": wanted.pop("CPU", 0),
            "num_gpus": wanted.pop("GPU", 0),
            "resources": wanted,
            "scheduling_strategy": _in_bundle(group, number),
        }

    def meeting_point(self, ray: Any) -> tuple[str, int]:
        """Return an address and a free port on the machine of rank 0, where the ranks of a trainer meet."""
        group = self._group(ray, "ranks")
        if group is None:
            return "127.0.0.1", _free_port()
        asked = ray.remote(_own_address).options(num_cpus=0, scheduling_strategy=_in_bundle(group, 0))
        address, port = ray.get(asked.remote())
        return str(address), int(port)

    def release(self) -> None:
        """Let go of everything, and with it of the actors there."""
        from ray.util.placement_group import remove_placement_group

        for group in self._groups.values():
            remove_placement_group(group)
        self._groups.clear()

    def _group(self, ray: Any, kind: str) -> Any:
        """Return the placement group of a kind of actors, the same for both if they share; None without a need."""
        bundles = self.placement.bundles(kind)
        if not bundles:
            return None
        name = "shared" if self.placement.is_shared else kind
        if name not in self._groups:
            self._groups[name] = self._reserved(ray, bundles, kind)
        return self._groups[name]

    def _reserved(self, ray: Any, bundles: list[dict[str, float]], kind: str) -> Any:
        from ray.util.placement_group import placement_group, remove_placement_group

        wanted = f"{len(bundles)} times {' and '.join(f'{amount:g} {name}' for name, amount in bundles[0].items())}"
        live.report(f"waiting for {wanted}")
        group = placement_group(bundles, strategy="PACK")
        if not group.wait(LOCAL_WAIT_S if self.is_local else CLUSTER_WAIT_S):
            remove_placement_group(group)
            offered = ray.cluster_resources()
            raise ConfigError(
                f"Ray does not offer what the {kind} need",
                got=", ".join(f"{offered.get(name, 0):g} {name}" for name in bundles[0]) + " in all",
                expected=f"{wanted}, free",
                cure="lower trainer.n_ranks or policy.n_replicas, set policy.placement=colocated, or enlarge the "
                "cluster",
            )
        return group


def _in_bundle(group: Any, number: int) -> Any:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)


def _this_machine(ray: Any) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def _own_address() -> tuple[str, int]:
    """Return the address of the machine that this runs on, and a port that is free there."""
    import ray

    return ray.util.get_node_ip_address(), _free_port()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port

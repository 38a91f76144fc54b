"""What runs ask Ray for, and what the groups of a cluster offer: Ray's own autoscaler is asked.

No cluster runs here; the autoscaler is given the rendered RayCluster and the demands, and answers with pods.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from kustomize import Resource
from manifests import JOBS, OVERLAYS, SERVICES, cluster_spec, config_for, of_kind, rendered, service_args

from pipelines.pddl_instruct import PIPELINE
from pipelines.run.placement import placement_of
from plansmith.config.pddl_instruct import PddlInstructConfig


@dataclass(frozen=True)
class Answer:
    """What Ray's autoscaler would do: pods to start by group, and what fits nowhere."""

    pods: dict[str, int]
    unmet: list[dict[str, float]]


def autoscaler_answer(spec: Resource, asked: Sequence[dict[str, float]]) -> Answer:
    """Return the answer of Ray's autoscaler v2 to a cluster that has its head only.

    Uses what Ray does not promise to keep: the functions by which it reads a RayCluster and schedules its demands.
    """
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil

    resource = {"metadata": {"name": "plansmith", "namespace": "plansmith"}, "spec": spec}
    config = AutoscalingConfig(_derive_autoscaling_config_from_ray_cr(resource), skip_content_hash=True)
    request = SchedulingRequest(
        disable_launch_config_check=True,
        node_type_configs={
            name: group for name, group in config.get_node_type_configs().items() if name != config.get_head_node_type()
        },
        max_num_nodes=config.get_max_num_nodes(),
        resource_requests=ResourceRequestUtil.group_by_count([ResourceRequestUtil.make(one) for one in asked]),
    )
    reply = ResourceDemandScheduler().schedule(request)
    return Answer(
        pods=dict(sum((Counter({one.instance_type: one.count}) for one in reply.to_launch), Counter[str]())),
        unmet=[ResourceRequestUtil.to_resource_map(one) for one in reply.infeasible_resource_requests],
    )


def asked_by(config: PddlInstructConfig, *, driver_cpus: float) -> list[dict[str, float]]:
    """Return all that a run may hold at one time: driver, trainer, engines and the workers of one parallel stage."""
    placement = placement_of(config.trainer, config.policy, config.cluster)
    actors = [*[dict(placement.rank)] * placement.n_ranks, *placement.engines()]
    assert config.cluster.max_workers is not None, "without it a run takes the cores that are there when it starts"
    return [{"CPU": driver_cpus}, *actors, *[{"CPU": 1.0}] * config.cluster.max_workers]


def unmet_asks(overlay: str, config: PddlInstructConfig) -> list[dict[str, float]]:
    [job] = of_kind("RayJob", rendered(f"overlays/{overlay}"))
    asked = asked_by(config, driver_cpus=job["spec"]["entrypointNumCpus"])
    return autoscaler_answer(cluster_spec(overlay), asked).unmet


@pytest.mark.parametrize(
    ("overlay", "pods"),
    # 1 driver and 31 workers in pods of 8; 1 driver and 512 workers in pods of 32
    [("small-job", {"cpu": 4, "gpu": 1}), ("large-job", {"cpu": 17, "policy": 8, "trainer": 1})],
)
def test_job_of_an_overlay_makes_the_autoscaler_start_just_the_groups_it_needs(
    overlay: str, pods: dict[str, int]
) -> None:
    [job] = of_kind("RayJob", rendered(f"overlays/{overlay}"))
    asked = asked_by(config_for(overlay), driver_cpus=job["spec"]["entrypointNumCpus"])
    assert autoscaler_answer(cluster_spec(overlay), asked) == Answer(pods, [])


@pytest.mark.parametrize("preset", PIPELINE.preset_names)
def test_every_resource_that_a_preset_asks_for_is_offered_by_some_overlay(preset: str) -> None:
    unmet = {overlay: unmet_asks(overlay, config_for(overlay, preset)) for overlay in JOBS}
    assert not all(unmet.values()), f"preset {preset}: no group offers {unmet}"


@pytest.mark.parametrize("overlay", JOBS)
def test_more_than_the_groups_may_grow_to_is_named_as_unmet(overlay: str) -> None:
    spec = cluster_spec(overlay)
    groups = {group["groupName"]: group for group in spec["workerGroupSpecs"]}
    name = "trainer" if "trainer" in groups else "gpu"
    most = groups[name]["maxReplicas"] * int(groups[name]["resources"]["trainer"])
    rank = {"GPU": 1.0, "trainer": 1.0, "CPU": 1.0}
    assert autoscaler_answer(spec, [rank] * most).unmet == []
    assert autoscaler_answer(spec, [rank] * (most + 1)).unmet == [rank]


@pytest.mark.parametrize("overlay", SERVICES)
def test_planning_service_of_an_overlay_is_offered_what_its_parts_reserve(overlay: str) -> None:
    args = service_args(overlay)
    engine = {"CPU": args.cpus_per_engine, "GPU": args.gpus_per_engine}
    asked = [
        *[{"CPU": args.cpus_per_front}] * args.fronts,
        *[engine] * (args.max_engines or args.engines),
        *[{"CPU": args.cpus_per_planner}] * (args.max_planners or args.planners),
    ]
    answer = autoscaler_answer(cluster_spec(overlay), asked)
    assert answer.unmet == []
    assert {"gpu", "policy"} & set(answer.pods)
    assert args.cpus_per_front > 0, "a front that reserves nothing may come to the head"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_head_offers_nothing_so_that_nothing_is_scheduled_there(overlay: str) -> None:
    head = cluster_spec(overlay)["headGroupSpec"]
    assert (head["rayStartParams"]["num-cpus"], head["rayStartParams"]["num-gpus"]) == ("0", "0")
    assert "resources" not in head
    assert "resources" not in head["rayStartParams"]


@pytest.mark.parametrize("overlay", JOBS)
def test_driver_of_a_job_reserves_a_core_so_that_it_is_not_on_the_head(overlay: str) -> None:
    [job] = of_kind("RayJob", rendered(f"overlays/{overlay}"))
    assert job["spec"]["entrypointNumCpus"] >= 1
    assert config_for(overlay).cluster.actor_cpus > 0
    assert config_for(overlay).cluster.address == "auto"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_group_with_gpus_offers_ray_what_its_pods_have_and_tolerates_their_taint(overlay: str) -> None:
    groups = [one for one in cluster_spec(overlay)["workerGroupSpecs"] if "GPU" in one["resources"]]
    assert groups
    for group in groups:
        pod = group["template"]["spec"]
        limits, requests = (pod["containers"][0]["resources"][kind] for kind in ("limits", "requests"))
        offered = {name: int(amount) for name, amount in group["resources"].items()}
        assert limits["nvidia.com/gpu"] == requests["nvidia.com/gpu"] == str(offered["GPU"])
        assert {offered.get("policy", offered["GPU"]), offered.get("trainer", offered["GPU"])} == {offered["GPU"]}
        assert {"policy", "trainer"} & set(offered)
        assert offered["CPU"] <= int(limits["cpu"])
        assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
        assert "plansmith-gpu" in pod["containers"][0]["image"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_group_without_gpus_offers_ray_the_cores_of_its_pods_and_no_more(overlay: str) -> None:
    [group] = [one for one in cluster_spec(overlay)["workerGroupSpecs"] if "GPU" not in one["resources"]]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert group["resources"] == {"CPU": limits["cpu"]}
    assert not [name for name in limits if "gpu" in name]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_groups_grow_from_none_and_shrink_again_under_autoscaler_v2(overlay: str) -> None:
    spec = cluster_spec(overlay)
    assert spec["enableInTreeAutoscaling"] is True
    assert spec["autoscalerOptions"]["version"] == "v2"
    for group in spec["workerGroupSpecs"]:
        assert 0 == group["minReplicas"] == group["replicas"] < group["maxReplicas"]
        assert group["idleTimeoutSeconds"] > 0
        assert group["template"]["spec"]["restartPolicy"] == "Never"  # a Ray node does not come back as another


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_object_store_fits_into_shared_memory_and_that_into_the_memory_limit(overlay: str) -> None:
    spec = cluster_spec(overlay)
    for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
        pod = group["template"]["spec"]
        [shared] = [volume["emptyDir"] for volume in pod["volumes"] if volume["name"] == "shared-mem"]
        assert shared["medium"] == "Memory"
        memory = pod["containers"][0]["resources"]["limits"]["memory"]
        assert int(group["rayStartParams"]["object-store-memory"]) <= gibibytes(shared["sizeLimit"]) * 2**30
        assert gibibytes(shared["sizeLimit"]) <= gibibytes(memory) / 2


def gibibytes(quantity: str) -> float:
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", quantity).groups()  # type: ignore[union-attr]
    return int(number) / (1024 if unit == "Mi" else 1)

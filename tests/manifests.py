"""The rendered manifests of a cluster, shared by the tests about them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml
from conftest import ROOT
from kustomize import Resource, render

from cluster.service.args import ServeArgs
from pipelines.commands.run import config_of, run_parser
from pipelines.pddl_instruct import PIPELINE
from plansmith.config.pddl_instruct import PddlInstructConfig

KUBERAY = ROOT / "cluster" / "kuberay"
OVERLAYS = sorted(path.name for path in (KUBERAY / "overlays").iterdir())
JOBS = [name for name in OVERLAYS if name.endswith("-job")]
SERVICES = [name for name in OVERLAYS if name.endswith("-service")]
FOLDERS = [*(f"overlays/{name}" for name in OVERLAYS), "foundation", "redis", "model-download"]
COMPONENTS = ["components/pod-monitor"]
DOCUMENT = ROOT / "docs" / "cluster.md"


@cache
def rendered(folder: str) -> tuple[Resource, ...]:
    return tuple(render(KUBERAY / folder))


def everything() -> list[Resource]:
    return [resource for folder in [*FOLDERS, *COMPONENTS] for resource in rendered(folder)]


def of_kind(kind: str, resources: Sequence[Resource]) -> list[Resource]:
    return [resource for resource in resources if resource["kind"] == kind]


def cluster_spec(overlay: str) -> Resource:
    """Return the spec of the Ray cluster, wherever the resource of the overlay holds it."""
    for resource in rendered(f"overlays/{overlay}"):
        spec: Resource = resource["spec"]
        if resource["kind"] == "RayCluster":
            return spec
        if "rayClusterSpec" in spec or "rayClusterConfig" in spec:
            inner: Resource = spec.get("rayClusterSpec") or spec["rayClusterConfig"]
            return inner
    raise AssertionError(f"no Ray cluster in {overlay}")


@dataclass(frozen=True)
class Pod:
    """A pod template, and where it stands."""

    where: str
    labels: dict[str, str]
    spec: Resource


def pods_in(value: Any, where: str) -> Iterator[Pod]:
    """Yield every pod template at any depth."""
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}):
            yield Pod(where, value.get("metadata", {}).get("labels", {}), value["spec"])
        for key, inner in value.items():
            yield from pods_in(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from pods_in(inner, f"{where}[{number}]")


ALL_PODS = [
    pod
    for folder in FOLDERS
    for resource in rendered(folder)
    for pod in pods_in(resource, f"{folder}: {resource['kind']}")
]


def serve_config(overlay: str) -> Resource:
    [service] = of_kind("RayService", rendered(f"overlays/{overlay}"))
    config: Resource = yaml.safe_load(service["spec"]["serveConfigV2"])
    return config


def service_args(overlay: str) -> ServeArgs:
    [application] = serve_config(overlay)["applications"]
    return ServeArgs.model_validate(application["args"])


def entrypoint(overlay: str) -> list[str]:
    [job] = of_kind("RayJob", rendered(f"overlays/{overlay}"))
    return shlex.split(job["spec"]["entrypoint"])


def config_for(overlay: str, preset: str | None = None) -> PddlInstructConfig:
    """Return the config of the run that a job starts; of another preset, if given, with the job's other settings.

    A preset that trains on a CPU has nothing that goes to machines with GPUs.
    """
    arguments = run_parser(PIPELINE).parse_args(entrypoint(overlay)[2:])
    if preset is not None:
        arguments.preset = preset
        if config_of(PIPELINE, arguments)[0].trainer.device == "cpu":
            arguments.overrides = [one for one in arguments.overrides if "_resource=" not in one]
    return config_of(PIPELINE, arguments)[0]


def matches(selector: Resource, labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", []))


def ports_of(selector: Resource) -> set[int]:
    """Return the ports on which the pods that a selector selects listen; raise where it selects none."""
    pods = [pod for pod in ALL_PODS if matches(selector, pod.labels)]
    assert pods, f"nothing is selected by {selector}"
    return {
        port["containerPort"]
        for pod in pods
        for container in pod.spec["containers"]
        for port in container.get("ports", [])
    }

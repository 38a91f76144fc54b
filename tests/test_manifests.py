"""The manifests of a cluster as they are rendered: what Kubernetes and KubeRay accept, and names that fit together.

No API server and no operator run here: rendered resources are held against KubeRay's own definitions and Kubernetes'
schemas. What runs ask for is in `test_manifest_resources`, what pods may do in `test_manifest_safety`.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from conftest import REFERENCE, ROOT, syntax_tree
from kustomize import Resource, containers_in, read, render
from manifests import (
    ALL_PODS,
    COMPONENTS,
    DOCUMENT,
    FOLDERS,
    JOBS,
    KUBERAY,
    OVERLAYS,
    SERVICES,
    cluster_spec,
    config_for,
    entrypoint,
    everything,
    of_kind,
    ports_of,
    rendered,
    serve_config,
    service_args,
)  # fmt: skip

from pipelines.commands.run import run_parser
from pipelines.pddl_instruct import PIPELINE

KUBERNETES_VERSION = "1.33.0"
FOREIGN_KINDS = {"PodMonitor"}
"""Kinds of operators whose definitions are not at hand: nothing here checks their fields."""

LOCK = dict(
    line.split("==")
    for line in (ROOT / "requirements" / "cpu.lock").read_text(encoding="utf-8").splitlines()
    if "==" in line
)


@pytest.mark.parametrize("folder", FOLDERS)
def test_render_beside_the_real_kustomize_gives_the_same_resources(folder: str) -> None:
    command = next(([path, *arguments] for name, arguments in (("kustomize", ["build"]), ("kubectl", ["kustomize"]))
                    if (path := shutil.which(name))), None)  # fmt: skip
    if command is None:
        pytest.skip("neither kustomize nor kubectl on PATH")
    output = subprocess.run([*command, str(KUBERAY / folder)], check=True, capture_output=True, text=True).stdout

    def order(resource: Resource) -> tuple[str, str]:
        return resource["kind"], resource["metadata"]["name"]

    theirs = [document for document in yaml.safe_load_all(output) if document]
    assert sorted(rendered(folder), key=order) == sorted(theirs, key=order)


@cache
def definition(kind: str) -> Resource:
    """Return KubeRay's schema of a kind, closed: a field that it does not know is a mistake.

    Kubernetes drops such fields without a word.
    """
    path = REFERENCE / "kuberay" / f"ray.io_{kind.lower()}s.yaml"
    if not path.is_file():
        pytest.skip(f"{path.name} is not beside the repository")
    document = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    [version] = [one for one in document["spec"]["versions"] if one["name"] == "v1"]
    return closed(version["schema"]["openAPIV3Schema"])


def closed(schema: Any) -> Any:
    """Return an OpenAPI schema of Kubernetes as a JSON schema that refuses unknown fields."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema["properties"], dict):
        result["properties"] = {name: closed(one) for name, one in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            result.setdefault("additionalProperties", False)
    if schema.get("nullable"):
        return {"anyOf": [result, {"type": "null"}]}
    return result


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_resource_of_kuberay_against_its_definition_has_known_fields_and_right_types(overlay: str) -> None:
    resources = [one for one in rendered(f"overlays/{overlay}") if one["apiVersion"] == "ray.io/v1"]
    assert resources
    for resource in resources:
        validator = jsonschema.Draft202012Validator(definition(resource["kind"]))
        mistakes = [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(resource)]
        assert not mistakes


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.workerGroupSpecs.0.maxReplica", 3),
        ("spec.workerGroupSpecs.0.maxReplicas", "3"),
        ("spec.autoscalerOptions.version", "v3"),
        ("spec.headGroupSpec.template.spec.containers.0.imagePolicy", "Always"),
    ],
    ids=["misspelt", "text for a number", "not in the list", "misspelt in a pod"],
)
def test_definition_of_kuberay_with_a_mistake_put_in_refuses_it(path: str, value: Any) -> None:
    [resource] = of_kind("RayCluster", render(KUBERAY / "overlays" / "small"))
    place: Any = resource
    *above, last = path.split(".")
    for name in above:
        place = place[int(name)] if name.isdigit() else place[name]
    place[last] = value
    assert not jsonschema.Draft202012Validator(definition("RayCluster")).is_valid(resource)


@pytest.mark.parametrize("folder", [*FOLDERS, *COMPONENTS])
def test_resource_of_kubernetes_against_its_schema_is_valid_with_nothing_unknown(folder: str) -> None:
    resources = rendered(folder)
    assert resources
    for resource in resources:
        if resource["apiVersion"] != "ray.io/v1" and resource["kind"] not in FOREIGN_KINDS:
            kubernetes_validate.validate(resource, KUBERNETES_VERSION, strict=True)  # raises


def test_every_name_that_a_pod_refers_to_exists() -> None:
    resources = everything()
    claims = {one["metadata"]["name"] for one in of_kind("PersistentVolumeClaim", resources)}
    accounts = {one["metadata"]["name"] for one in of_kind("ServiceAccount", resources)}
    for pod in ALL_PODS:
        volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
        templates = {"data"} if "StatefulSet" in pod.where else set()
        for container in pod.spec["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= set(volumes) | templates, pod.where
        for volume in volumes.values():
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims
        assert pod.spec.get("serviceAccountName", "plansmith") in accounts


@pytest.mark.parametrize("overlay", JOBS)
def test_entrypoint_of_a_job_names_a_script_of_the_image_and_writes_to_the_shared_volume(overlay: str) -> None:
    command, script, *_ = entrypoint(overlay)
    assert command == "python"
    assert (ROOT / Path(script).relative_to("/opt/plansmith")).is_file()
    assert "WORKDIR /opt/plansmith" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    arguments = run_parser(PIPELINE).parse_args(entrypoint(overlay)[2:])
    assert arguments.runs == Path("/artifacts/runs")


@pytest.mark.parametrize("overlay", SERVICES)
def test_serve_config_of_a_service_names_a_function_that_exists_and_arguments_it_takes(overlay: str) -> None:
    from ray.serve.schema import ServeDeploySchema

    schema = ServeDeploySchema.model_validate(serve_config(overlay))
    module, function = schema.applications[0].import_path.split(":")
    tree = syntax_tree(ROOT / f"{module.replace('.', '/')}.py")
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    job = overlay.replace("-service", "-job")
    run = config_for(job).name
    assert service_args(overlay).policy == f"/artifacts/runs/{run}/model"


def test_versions_in_manifests_are_those_of_lock_and_project() -> None:
    for overlay in OVERLAYS:
        assert cluster_spec(overlay)["rayVersion"] == LOCK["ray"]
    images = {container["image"] for resource in everything() for container in containers_in(resource)}
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.*)"$', pyproject, re.MULTILINE).group(1)  # type: ignore[union-attr]
    ours = {image for image in images if "plansmith" in image}
    assert ours == {f"registry.example/plansmith-{kind}:{version}" for kind in ("cpu", "gpu")}
    assert all(re.fullmatch(r"redis:\d+\.\d+\.\d+(-\w+)?", image) for image in images - ours)


def test_document_of_the_cluster_names_folders_that_exist() -> None:
    named = set(re.findall(r"(?:-k|-f) (cluster/kuberay[\w/.-]*)", DOCUMENT.read_text(encoding="utf-8")))
    assert {"cluster/kuberay/foundation", "cluster/kuberay/redis"} <= named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("folder", COMPONENTS)
def test_component_that_no_overlay_uses_selects_pods_that_exist(folder: str) -> None:
    [monitor] = of_kind("PodMonitor", rendered(folder))
    assert 8080 in ports_of(monitor["spec"]["selector"])
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == "metrics"
    assert read(KUBERAY / folder / "pod-monitor.yaml") == [monitor]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_component_in_an_overlay_is_where_its_cluster_is(overlay: str, tmp_path: Path) -> None:
    shutil.copytree(KUBERAY, tmp_path / "kuberay")
    path = tmp_path / "kuberay" / "overlays" / overlay / "kustomization.yaml"
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    settings.setdefault("components", []).append("../../components/pod-monitor")
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    places = {resource["metadata"].get("namespace") for resource in render(path.parent)
              if resource["kind"] in ("PodMonitor", "NetworkPolicy", "RayCluster", "RayService", "RayJob")}  # fmt: skip
    assert places == {"plansmith"}

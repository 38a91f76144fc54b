"""What the manifests of a cluster let a pod do: to its machine, to Kubernetes, over the network, with secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from kustomize import Resource, containers_in
from manifests import (
    ALL_PODS,
    DOCUMENT,
    OVERLAYS,
    Pod,
    cluster_spec,
    everything,
    of_kind,
    pods_in,
    ports_of,
    rendered,
    serve_config,
)

every_pod = pytest.mark.parametrize("pod", ALL_PODS, ids=lambda pod: pod.where)


@every_pod
def test_container_has_requests_and_limits_and_an_image_of_one_version(pod: Pod) -> None:
    for container in pod.spec["containers"]:
        for kind in ("requests", "limits"):
            assert {"cpu", "memory"} <= set(container["resources"][kind])
        name, _, tag = container["image"].rpartition(":")
        assert name
        assert tag not in {"", "latest"}


@every_pod
def test_pod_runs_as_a_plain_user_with_nothing_of_the_host(pod: Pod) -> None:
    context = pod.spec["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod.spec)
    assert all(
        set(volume) - {"name"} <= {"emptyDir", "persistentVolumeClaim"} for volume in pod.spec.get("volumes", [])
    )
    for container in pod.spec["containers"]:
        assert container["securityContext"] == CONFINED
        assert all("hostPort" not in port for port in container.get("ports", []))


CONFINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@every_pod
def test_pod_can_write_where_the_program_writes(pod: Pod) -> None:
    for container in pod.spec["containers"]:
        mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        writable = {path for path, mount in mounts.items() if not mount.get("readOnly")}
        environment = {one["name"]: one.get("value") for one in container["env"]}
        assert "/tmp" in writable or container["name"] == "redis"
        assert environment.get("HOME", "/tmp") == "/tmp"
        if "ray-" in container["name"]:
            assert {"/tmp/ray", "/dev/shm", "/artifacts"} <= writable
            assert mounts["/models"]["readOnly"] is True
            assert environment["HF_HUB_CACHE"] == "/models"


@every_pod
def test_pod_but_the_head_holds_no_token_of_kubernetes(pod: Pod) -> None:
    if pod.labels["app.kubernetes.io/component"] == "head":
        assert "serviceAccountName" not in pod.spec  # KubeRay makes one that may scale this cluster and nothing else
    else:
        assert pod.spec["automountServiceAccountToken"] is False
        assert pod.spec["serviceAccountName"] == "plansmith"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_ray_asks_for_a_token_that_comes_from_a_secret(overlay: str) -> None:
    spec = cluster_spec(overlay)
    assert spec["authOptions"] == {"mode": "token", "secretName": "plansmith-ray-token"}
    assert spec["autoscalerOptions"]["securityContext"] == CONFINED
    resources = rendered(f"overlays/{overlay}")
    for pod in (pod for resource in resources for pod in pods_in(resource, overlay)):
        assert {"name": "RAY_AUTH_MODE", "value": "token"} in pod.spec["containers"][0]["env"]


def test_secret_values_are_nowhere_and_every_secret_is_made_by_a_command_of_the_docs() -> None:
    assert not of_kind("Secret", everything())
    text = DOCUMENT.read_text(encoding="utf-8")
    asked = {("plansmith-ray-token", "auth_token")}
    for variable in (one for resource in everything() for one in environment_in(resource)):
        if "value" in variable:
            assert not re.search("TOKEN|PASSWORD|SECRET|CREDENTIAL|_KEY", variable["name"]), variable
        elif "secretKeyRef" in variable["valueFrom"]:
            asked.add((variable["valueFrom"]["secretKeyRef"]["name"], variable["valueFrom"]["secretKeyRef"]["key"]))
    for name, key in asked:
        assert re.search(rf"create secret generic {name} \\?\s*--from-file={key}=/dev/stdin", text), name


def environment_in(resource: Resource) -> Iterator[Resource]:
    for container in containers_in(resource):
        yield from container.get("env", [])


NAME_SERVICE, KUBERNETES_API, WEB = {53}, {443, 6443}, {443}


def rules() -> list[tuple[str, Resource, str, Resource]]:
    """Return every rule: name of its policy, who is selected, direction, rule."""
    return [
        (policy["metadata"]["name"], policy["spec"]["podSelector"], direction, rule)
        for policy in of_kind("NetworkPolicy", everything())
        for direction in ("ingress", "egress")
        for rule in policy["spec"].get(direction, [])
    ]


@pytest.mark.parametrize(("policy", "selector", "direction", "rule"), rules(), ids=[f"{r[0]}-{r[2]}" for r in rules()])
def test_rule_of_a_network_policy_names_ports_on_which_somebody_listens(
    policy: str, selector: Resource, direction: str, rule: Resource
) -> None:
    named = {port["port"] for port in rule.get("ports", [])}
    peers = rule["from" if direction == "ingress" else "to"]
    assert peers, "a rule without peers lets everybody in"
    if direction == "ingress":
        assert named <= ports_of(selector)
        return
    for peer in peers:
        if "ipBlock" in peer:
            assert named == (WEB if policy == "model-download" else KUBERNETES_API)
        elif "namespaceSelector" in peer:
            assert named == NAME_SERVICE
        else:
            assert named <= ports_of(peer["podSelector"])


def test_network_policies_deny_first_and_open_all_ports_only_within_a_ray_cluster() -> None:
    [deny] = [one for one in of_kind("NetworkPolicy", everything()) if one["metadata"]["name"] == "default-deny"]
    assert deny["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert {policy for policy, _, _, rule in rules() if "ports" not in rule} == {"within-ray"}
    outward = {policy for policy, _, direction, rule in rules() if direction == "egress" and "ipBlock" in str(rule)}
    assert outward == {"autoscaler", "model-download"}


def test_network_policy_lists_the_directions_that_its_rules_have() -> None:
    for policy in of_kind("NetworkPolicy", everything()):
        directions = {kind for kind in ("Ingress", "Egress") if policy["spec"].get(kind.lower())}
        assert directions in ({*policy["spec"]["policyTypes"]}, set()), policy["metadata"]["name"]


def test_ports_in_manifests_are_those_that_ray_uses() -> None:
    from ray._private import ray_constants
    from ray.serve._private.constants import DEFAULT_HTTP_PORT

    head = cluster_spec("small")["headGroupSpec"]
    ports = {port["name"]: port["containerPort"] for port in head["template"]["spec"]["containers"][0]["ports"]}
    assert ports == {
        "gcs-server": ray_constants.DEFAULT_PORT,
        "dashboard": ray_constants.DEFAULT_DASHBOARD_PORT,
        "metrics": int(head["rayStartParams"]["metrics-export-port"]),
        "serve": DEFAULT_HTTP_PORT,
    }
    assert serve_config("small-service")["http_options"]["port"] == ports["serve"]

"""Renders a kustomization as `kubectl kustomize` does, as far as ours need it; for machines without that command.

Knows resources, components, namespace, JSON patches, images and replacements of whole fields, and raises at anything
else, so that it cannot agree by not looking. `test_manifests` compares it with the real command where there is one.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonpatch
import yaml

Resource = dict[str, Any]

KNOWN = {"apiVersion", "kind", "namespace", "resources", "components", "patches", "images", "replacements"}
LOCAL = "config.kubernetes.io/local-config"
"""The annotation of resources that others read and that are not rendered."""


def render(folder: Path) -> list[Resource]:
    """Return the resources of a kustomization.

    Raises:
        ValueError: it uses what this does not know, or a patch or a replacement meets nothing.
    """
    return [one for one in _accumulate(folder, []) if _annotations(one).get(LOCAL) != "true"]


def _accumulate(folder: Path, above: list[Resource]) -> list[Resource]:
    settings = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    if unknown := set(settings) - KNOWN:
        raise ValueError(f"{folder}: cannot render {', '.join(sorted(unknown))}")
    resources = [*above]
    for name in settings.get("resources", []):
        path = folder / name
        resources += _accumulate(path, []) if path.is_dir() else read(path)
    for name in settings.get("components", []):
        resources = _accumulate(folder / name, resources)
    for patch in settings.get("patches", []):
        _patch(resources, patch, folder)
    for resource in resources:
        _set_namespace(resource, settings.get("namespace"))
        _set_images(resource, {image["name"]: image for image in settings.get("images", [])})
    for replacement in settings.get("replacements", []):
        _replace(resources, replacement)
    return resources


def read(path: Path) -> list[Resource]:
    """Return the resources in a file; what YAML shares by an anchor is shared no longer."""
    documents = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    return [_unshared(document) for document in documents if document]


def _unshared(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unshared(inner) for key, inner in value.items()}
    return [_unshared(inner) for inner in value] if isinstance(value, list) else value


def _patch(resources: list[Resource], patch: Resource, folder: Path) -> None:
    operations = yaml.safe_load((folder / patch["path"]).read_text(encoding="utf-8"))
    if not isinstance(operations, list):
        raise ValueError(f"{folder / patch['path']}: not a JSON patch")
    for number in _selected(resources, patch["target"]):
        # without sharing: a copied group must not change with the one it was copied from
        resources[number] = _unshared(jsonpatch.apply_patch(resources[number], operations))


def _replace(resources: list[Resource], replacement: Resource) -> None:
    source = {key: value for key, value in replacement["source"].items() if key != "fieldPath"}
    [found] = _selected(resources, source)
    value = resources[found][replacement["source"]["fieldPath"]]
    for target in replacement["targets"]:
        for number in _selected(resources, target["select"]):
            for path in target["fieldPaths"]:
                *above, last = path.split(".")
                place = resources[number]
                for name in above:
                    place = place[name]
                place[last] = copy.deepcopy(value)


def _selected(resources: list[Resource], target: Resource) -> list[int]:
    if unknown := set(target) - {"kind", "name"}:
        raise ValueError(f"cannot select by {', '.join(sorted(unknown))}")
    numbers = [
        number
        for number, resource in enumerate(resources)
        if re.fullmatch(target["kind"], resource["kind"]) and re.fullmatch(target["name"], resource["metadata"]["name"])
    ]
    if not numbers:
        raise ValueError(f"no resource is {target}")
    return numbers


def _set_namespace(resource: Resource, namespace: str | None) -> None:
    if namespace is not None and resource["kind"] != "Namespace":
        resource["metadata"]["namespace"] = namespace


def _set_images(resource: Resource, images: dict[str, Resource]) -> None:
    for container in containers_in(resource):
        name, _, _ = container["image"].rpartition(":")
        if image := images.get(name):
            container["image"] = f"{image['newName']}:{image['newTag']}"


def containers_in(value: Any) -> Iterator[Resource]:
    """Yield every container at any depth, those that run at the start of a pod too."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in {"containers", "initContainers"}:
                yield from inner
            else:
                yield from containers_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from containers_in(inner)


def _annotations(resource: Resource) -> Resource:
    annotations: Resource = resource["metadata"].get("annotations") or {}
    return annotations

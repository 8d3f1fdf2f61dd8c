"""The Kubernetes manifests, without a cluster: against the API's schemas, and against what they name in this code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from server.settings import Settings
from tests.deploy.test_server_and_probe import DOCKERFILES, ROOT, parse_command

FOLDER = ROOT / "deploy" / "kubernetes"
OBJECTS = [
    (path.name, document) for path in sorted(FOLDER.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())
]
POD_OWNERS = [(name, one) for name, one in OBJECTS if one["kind"] in ("Deployment", "DaemonSet", "Job")]
OURS = re.compile(r"registry\.example/synth-(server|probe):")


def of_kind(kind: str) -> dict[str, Any]:
    return {document["metadata"]["name"]: document for _, document in OBJECTS if document["kind"] == kind}


def pod(document: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = document["spec"]["template"]["spec"]
    return spec


def containers() -> list[Any]:
    return [
        pytest.param(document, container, id=container["name"])
        for _, document in POD_OWNERS
        for container in pod(document)["containers"]
    ]


@pytest.mark.parametrize(("name", "document"), OBJECTS, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("version", ["1.29", "1.34"])
def test_the_schemas_of_the_api_accept_them(name: str, document: dict[str, Any], version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed").validate
    validate(document, version, strict=True)


def test_every_kind_that_is_promised_is_there() -> None:
    assert sorted(document["kind"] for _, document in OBJECTS) == [
        "DaemonSet", "Deployment", "Job", "PersistentVolumeClaim", "Service", "Service",
    ]  # fmt: skip


@pytest.mark.parametrize(("document", "container"), containers())
def test_commands_and_variables_exist(document: dict[str, Any], container: dict[str, Any]) -> None:
    known = "\n".join(
        (ROOT / path).read_text()
        for path in ("runtime/attach.py", "runtime/rendezvous.py", "synth/client/environment.py")
    )
    for variable in container["env"]:
        name = variable["name"]
        if name.startswith("SYNTH_SERVE_"):
            assert name.removeprefix("SYNTH_SERVE_").lower() in Settings.model_fields
        elif name.startswith("SYNTH_"):
            assert re.search(rf"\b{name}\b", known), name
    ours = OURS.match(container["image"])
    if ours is None:
        script = container["args"].index("/opt/training/train.py")
        (mount,) = (one for one in container["volumeMounts"] if one["name"] == "training")
        assert (ROOT / "deploy" / "training" / Path(container["args"][script]).name).is_file()
        assert mount["mountPath"] == str(Path(container["args"][script]).parent)
        return
    command = {"server": "serve", "probe": "probe"}[ours[1]]
    parse_command([command, *container["args"]])
    assert f"{ours[1]}.Dockerfile" in {path.name for path in DOCKERFILES}
    assert pod(document)["securityContext"]["runAsUser"] == 10001  # the user of the image
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip


@pytest.mark.parametrize(("document", "container"), containers())
def test_what_is_named_is_there(document: dict[str, Any], container: dict[str, Any]) -> None:
    volumes = {volume["name"]: volume for volume in pod(document)["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    made = set(re.findall(r"kubectl create (?:secret generic|configmap) (\S+)", all_text()))
    for volume in volumes.values():
        if "persistentVolumeClaim" in volume:
            assert volume["persistentVolumeClaim"]["claimName"] in of_kind("PersistentVolumeClaim")
        for kind, key in (("secret", "secretName"), ("configMap", "name")):
            if kind in volume:
                assert volume[kind][key] in made, "the file's comment says how to make it"
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    values = [variable.get("value", "") for variable in container["env"]]
    for path in (value for value in (*values, *container["args"]) if value.startswith("/")):
        assert any(path == mounted or path.startswith(f"{mounted}/") for mounted in paths), path
    declared = {variable["name"] for variable in container["env"]}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))) <= declared


def all_text() -> str:
    return "\n".join(path.read_text() for path in sorted(FOLDER.glob("*.yaml")))


def test_services_select_pods_and_ports_match() -> None:
    labels = {name: document["spec"]["template"]["metadata"]["labels"] for name, document in POD_OWNERS}
    for service in of_kind("Service").values():
        assert service["spec"]["selector"] in labels.values()
    (server,) = pod(of_kind("Deployment")["synth"])["containers"]
    port = {one["name"]: one["containerPort"] for one in server["ports"]}["http"]
    assert of_kind("Service")["synth"]["spec"]["ports"][0] == {"name": "http", "port": port, "targetPort": "http"}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = server[probe]["httpGet"]
        assert asked["port"] == "http"
        assert f'"{asked["path"]}"' in (ROOT / "server" / "openapi.json").read_text()
    urls = re.findall(r"SYNTH_SERVER, value: \"([^\"]+)\"", all_text())
    assert urls == [f"http://synth:{port}"] * 2
    grace = pod(of_kind("Deployment")["synth"])["terminationGracePeriodSeconds"]
    drain = float(server["args"][server["args"].index("--drain-seconds") + 1])
    assert grace >= drain + 10 + 15  # requests in progress get 10 s, and solves have to stop


def test_the_jobs_pods_find_each_other() -> None:
    job = of_kind("Job")["synth-training"]["spec"]
    (training,) = job["template"]["spec"]["containers"]
    given = dict(argument[2:].split("=", 1) for argument in training["args"] if "=" in argument)
    subdomain = job["template"]["spec"]["subdomain"]
    assert of_kind("Service")[subdomain]["spec"]["clusterIP"] == "None"
    assert given["master-addr"] == f"synth-training-0.{subdomain}"
    assert int(given["master-port"]) == of_kind("Service")[subdomain]["spec"]["ports"][0]["port"]
    assert int(given["nnodes"]) == job["completions"] == job["parallelism"]
    assert int(given["nproc-per-node"]) == training["resources"]["limits"]["nvidia.com/gpu"]


def test_the_servers_and_probes_version_is_this_one() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    assert set(re.findall(r"registry\.example/synth-\w+:(\S+)", all_text())) == {version[1]}

# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' objects of examples: whether their fields are such that it takes them, and
what their containers run.

Only the fields that the examples use are known here; another one is an error.
"""

import re

from demands import check
from rsh_mount import Skipped

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# Of a field: its type, a list of one for a list of such, or a dict of the fields inside.
RESOURCES = {"cpu": (str, int), "memory": str}
PROBE = {"exec": {"command": [str]}, "periodSeconds": int, "failureThreshold": int,
         "timeoutSeconds": int}
MOUNT = {"name": str, "mountPath": str, "readOnly": bool, "mountPropagation": str}
CONTAINER = {
    "name": str, "image": str, "command": [str], "args": [str], "restartPolicy": str,
    "securityContext": {
        "privileged": bool, "runAsNonRoot": bool, "runAsUser": int,
        "allowPrivilegeEscalation": bool, "capabilities": {"drop": [str]},
        "readOnlyRootFilesystem": bool, "seccompProfile": {"type": str}},
    "startupProbe": PROBE, "readinessProbe": PROBE,
    "lifecycle": {"preStop": {"exec": {"command": [str]}}},
    "resources": {"requests": RESOURCES, "limits": RESOURCES},
    "envFrom": [{"secretRef": {"name": str}}], "volumeMounts": [MOUNT]}
VOLUME = {"name": str, "hostPath": {"path": str, "type": str}, "emptyDir": {"medium": str},
          "persistentVolumeClaim": {"claimName": str, "readOnly": bool},
          "configMap": {"name": str}}
POD = {"restartPolicy": str, "terminationGracePeriodSeconds": int,
       "initContainers": [CONTAINER], "containers": [CONTAINER], "volumes": [VOLUME]}
JOB = {"completionMode": str, "completions": int, "parallelism": int, "template": {"spec": POD}}
KINDS = {("v1", "Pod"): POD, ("batch/v1", "Job"): JOB}
VALUES = {"restartPolicy": {"Always", "OnFailure", "Never"},
          "completionMode": {"Indexed", "NonIndexed"},
          "mountPropagation": {"None", "HostToContainer", "Bidirectional"}}


def check_fields(where, value, wanted):
    if isinstance(wanted, dict):
        check(isinstance(value, dict), f"{where} is not a map: {value!r}")
        for key, inner in value.items():
            check(key in wanted, f"{where} has no field {key}")
            check(inner in VALUES.get(key, [inner]), f"{where}.{key} is {inner!r}")
            check_fields(f"{where}.{key}", inner, wanted[key])
    elif isinstance(wanted, list):
        check(isinstance(value, list) and value, f"{where} is not a list: {value!r}")
        for number, inner in enumerate(value):
            check_fields(f"{where}[{number}]", inner, wanted[0])
    else:
        # A bool is an int in Python, and none in YAML.
        check(isinstance(value, wanted) and (wanted is not int or value is not True),
              f"{where} has the wrong type: {value!r}")


def check_pod(pod):
    check("containers" in pod, "a pod without containers")
    containers = pod.get("initContainers", []) + pod["containers"]
    volumes = [volume["name"] for volume in pod.get("volumes", [])]
    names = [container.get("name", "") for container in containers] + volumes
    check(all(NAME.fullmatch(name) for name in names), f"{names}: a name is none of DNS")
    check(len(set(names)) == len(names), f"{names}: a name is there twice")
    for volume in pod.get("volumes", []):
        check(len(volume) == 2, f"{volume}: not one kind of volume")
    used = set()
    for container in containers:
        check("image" in container, f"{container['name']}: no image")
        for mount in container.get("volumeMounts", []):
            check(mount["name"] in volumes, f"no volume {mount['name']}")
            check(mount["mountPath"].startswith("/"), f"{mount['mountPath']} is not absolute")
            privileged = container.get("securityContext", {}).get("privileged")
            check(mount.get("mountPropagation") != "Bidirectional" or privileged,
                  f"{container['name']}: Bidirectional is for privileged containers only")
            used.add(mount["name"])
    check(used == set(volumes), f"{set(volumes) - used} is not mounted")
    for container in pod["containers"]:
        check("restartPolicy" not in container, "only init containers are sidecars")


def pod_of(text):
    """The pod of an object, whose fields are checked, with what it is the template of."""
    try:
        import yaml  # pylint: disable=import-outside-toplevel
    except ImportError as e:
        raise Skipped("Python has no yaml") from e
    object_, = yaml.safe_load_all(text)
    spec = KINDS.get((object_.pop("apiVersion", None), object_.pop("kind", None)))
    check(spec, "not a Pod of v1 nor a Job of batch/v1")
    check_fields("object", object_, {"metadata": {"name": str}, "spec": spec})
    check(NAME.fullmatch(object_["metadata"]["name"]), object_["metadata"])
    pod = object_["spec"]
    if spec is JOB:
        check(pod.get("completionMode") != "Indexed" or pod.get("completions", 0) > 0,
              "an indexed Job needs completions")
        pod = pod["template"]["spec"]
        check(pod.get("restartPolicy") in ("Never", "OnFailure"), "a Job restarts no pod")
    check_pod(pod)
    return pod


def command_of(container):
    """The words that a container runs."""
    return container.get("command", []) + container.get("args", [])

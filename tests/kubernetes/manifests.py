"""Are manifests what Kubernetes takes? Its own schemas say so, of several releases, and strictly: no key that they do not
know.  Use: manifests.py FILE...; each must have the kinds below, and a pod's Secret, service and priority class.
Or: manifests.py --posted FILE GRACE_S: bodies that a run has sent, a line each (fake_api.py): pods of that grace, and their Secrets."""
import json
import sys

import kubernetes_validate
import yaml

KINDS = {"PriorityClass", "ServiceAccount", "Role", "RoleBinding", "Service", "PodDisruptionBudget", "Secret", "Pod"}
VERSIONS = ["1.25", "1.29", "1.33", "1.37"]
count = 0


def validate(document):
    global count
    for version in VERSIONS:
        kubernetes_validate.validate(document, version, strict=True)
        count += 1


def ticket_of(pod):
    """Where its ticket is: the Secret and the key, by the file that its agent joins by."""
    container = pod["spec"]["containers"][0]
    command = container["command"]
    file = command[command.index("--join") + 1].removeprefix("@")
    mount = next(m for m in container["volumeMounts"] if file.startswith(m["mountPath"] + "/"))
    volume = next(v for v in pod["spec"]["volumes"] if v["name"] == mount["name"])["secret"]
    assert "subPath" not in mount, "such a file would never change"
    return volume["secretName"], next(i["key"] for i in volume["items"] if i["path"] == file[len(mount["mountPath"]) + 1:])


def check_posted(path, grace):
    with open(path, encoding="utf-8") as file:
        bodies = [json.loads(line) for line in file]
    secrets = {b["metadata"]["name"]: b for b in bodies if b["kind"] == "Secret"}
    pods = [b for b in bodies if b["kind"] == "Pod"]
    assert {b["kind"] for b in bodies} == {"Pod", "Secret"}, path
    for body in bodies:
        validate(body)
    for pod in pods:
        secret, key = ticket_of(pod)
        assert key in secrets[secret]["stringData"], (path, pod["metadata"]["name"])
        assert pod["spec"]["terminationGracePeriodSeconds"] == grace, (path, pod["metadata"]["name"])
    return len(bodies)


if sys.argv[1] == "--posted":
    print(f"posted: {check_posted(sys.argv[2], int(sys.argv[3]))} bodies pass the schemas of Kubernetes {', '.join(VERSIONS)}")
    sys.exit()
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        documents = list(yaml.safe_load_all(file))
    by_kind = {}
    for document in documents:
        by_kind.setdefault(document["kind"], []).append(document)
        validate(document)
    assert set(by_kind) == KINDS, (path, set(by_kind) ^ KINDS)
    named = lambda kind: {d["metadata"]["name"]: d for d in by_kind[kind]}
    for name, pod in named("Pod").items():
        spec = pod["spec"]
        secret, key = ticket_of(pod)
        assert key in named("Secret")[secret]["stringData"], (path, name)
        assert spec["subdomain"] in named("Service") and spec["priorityClassName"] in named("PriorityClass"), (path, name)
        labels = pod["metadata"]["labels"].items()
        assert all(pair in labels for pair in by_kind["Service"][0]["spec"]["selector"].items()), (path, name)
        assert all(pair in labels for pair in by_kind["PodDisruptionBudget"][0]["spec"]["selector"]["matchLabels"].items())
        amounts = spec["containers"][0]["resources"]["limits"]
        assert int(amounts["nvidia.com/gpu"]) >= 1, (path, name)
    rights = {(r, v) for rule in by_kind["Role"][0]["rules"] for r in rule["resources"] for v in rule["verbs"]}
    assert rights == {(r, v) for r in ("pods", "secrets") for v in ("create", "list", "patch", "delete", "deletecollection")}, path
    assert len(by_kind["Pod"]) == len(by_kind["Secret"][0]["stringData"]), path
print(f"manifests: {count} documents pass the schemas of Kubernetes {', '.join(VERSIONS)}")

"""Is the stand-in (fake_api.py) shaped as an API server? The official Python client asks it, and reads what it answers
into its own models, which refuse what they do not know.  Use: shape.py KUBECONFIG"""
import os
import sys
import time

from kubernetes import client, config
from kubernetes.client.rest import ApiException

config.load_kube_config(sys.argv[1])
core = client.CoreV1Api()
SPACE = "training"
done = 0


def ok(name, value):
    global done
    if not value:
        raise SystemExit(f"FAILED shape: {name}")
    done += 1


def code_of(call, *args, **named):
    try:
        call(*args, **named)
    except ApiException as error:
        return error.status
    return 200


def await_phase(name, phase):
    for _ in range(1000):
        pod = core.read_namespaced_pod(name, SPACE)
        if pod.status.phase == phase:
            return pod
        time.sleep(0.01)
    raise SystemExit(f"FAILED shape: {name} is never {phase}")


def pod_of(name, command, grace=30):
    volume = client.V1Volume(name="word", secret=client.V1SecretVolumeSource(
        secret_name="words", items=[client.V1KeyToPath(key="word", path="shown")]))
    env = [client.V1EnvVar(name="WORD_FILE", value="/somewhere/shown"), client.V1EnvVar(name="WORD", value_from=client.V1EnvVarSource(
        secret_key_ref=client.V1SecretKeySelector(name="words", key="word"))),
        client.V1EnvVar(name="POD_IP", value_from=client.V1EnvVarSource(
            field_ref=client.V1ObjectFieldSelector(field_path="status.podIP")))]
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, labels={"tidemill.io/folder": "a"}),
        spec=client.V1PodSpec(restart_policy="Never", termination_grace_period_seconds=grace, volumes=[volume], containers=[
            client.V1Container(name="agent", image="any", command=command, env=env, volume_mounts=[
                client.V1VolumeMount(name="word", mount_path="/somewhere", read_only=True)])]))


secret = client.V1Secret(metadata=client.V1ObjectMeta(name="words", labels={"tidemill.io/folder": "a"}),
                         string_data={"word": "hello"})
made = core.create_namespaced_secret(SPACE, secret)
ok("a Secret has its data in base64", made.data == {"word": "aGVsbG8="})
ok("a name twice is 409", code_of(core.create_namespaced_secret, SPACE, secret) == 409)
pod = core.create_namespaced_pod(SPACE, pod_of("one", ["sh", "-c", "test \"$WORD\" = hello; exit $?"]))
ok("a pod has a uid and a phase", pod.metadata.uid and pod.status.phase == "Pending")
pod = await_phase("one", "Succeeded")
ok("what ran has its status", pod.status.container_statuses[0].state.terminated.exit_code == 0)
core.create_namespaced_pod(SPACE, pod_of("two", ["sleep", "600"]))
pod = await_phase("two", "Running")
ok("it runs on a node, with an address", pod.spec.node_name and pod.status.pod_ip == "127.0.0.1")
ok("it is ready", any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions))
listed = core.list_namespaced_pod(SPACE, label_selector="tidemill.io/folder=a")
ok("a list by label", isinstance(listed, client.V1PodList) and {p.metadata.name for p in listed.items} == {"one", "two"})
ok("and none by another", not core.list_namespaced_pod(SPACE, label_selector="tidemill.io/folder=b").items)
core.create_namespaced_pod(SPACE, pod_of("four", ["sh", "-c", 'test "$(cat "$WORD_FILE")" = hello || exit 9; '
                                                  'until test "$(cat "$WORD_FILE")" = bye; do sleep 0.05; done']))
await_phase("four", "Running")
changed = core.patch_namespaced_secret("words", SPACE, {"stringData": {"word": "bye"}})
ok("a Secret changes", changed.data == {"word": "Ynll"})
pod = core.patch_namespaced_pod("four", SPACE, {"metadata": {"labels": {"tidemill.io/instance": "7"}}})
ok("a pod's label is added", pod.metadata.labels == {"tidemill.io/folder": "a", "tidemill.io/instance": "7"})
pod = await_phase("four", "Succeeded")
ok("a Secret is a file of the pod, and changes with it", pod.status.container_statuses[0].state.terminated.exit_code == 0)
core.delete_namespaced_pod("four", SPACE)
ok("what is not there cannot be changed", code_of(core.patch_namespaced_pod, "four", SPACE, {"metadata": {}}) == 404)
eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="two", namespace=SPACE))
core.create_namespaced_pod("training", pod_of("three", ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], grace=60))
await_phase("three", "Running")
core.create_namespaced_pod_eviction("three", SPACE, client.V1Eviction(metadata=client.V1ObjectMeta(name="three")))
pod = core.read_namespaced_pod("three", SPACE)
ok("one that is evicted says when it will be gone", pod.metadata.deletion_timestamp is not None)
ok("and that it is a disruption", any(c.type == "DisruptionTarget" for c in pod.status.conditions))
core.delete_namespaced_pod("three", SPACE, grace_period_seconds=0)
ok("by force it goes at once", code_of(core.read_namespaced_pod, "three", SPACE) == 404)
core.delete_namespaced_pod("two", SPACE)
for _ in range(1000):
    if code_of(core.read_namespaced_pod, "two", SPACE) == 404:
        break
    time.sleep(0.01)
ok("one that is deleted ends", code_of(core.read_namespaced_pod, "two", SPACE) == 404)
ok("what is not there is 404", code_of(core.delete_namespaced_pod, "two", SPACE) == 404)
ok("another namespace is 403", code_of(core.list_namespaced_pod, "other") == 403)
core.delete_namespaced_pod("one", SPACE)
core.delete_collection_namespaced_secret(SPACE, label_selector="tidemill.io/folder=a")
ok("a collection goes by label", not core.list_namespaced_secret(SPACE).items)
with open(os.path.join(os.path.dirname(sys.argv[1]), "life"), "w", encoding="utf-8") as file:
    file.write("3600")
plugged = client.CoreV1Api(config.new_client_from_config(sys.argv[1], context="plugin"))
ok("the credential plugin is one", plugged.list_namespaced_pod(SPACE).items == [])
print(f"shape: {done} answers are as the official client knows them")

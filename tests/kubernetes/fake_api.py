#!/usr/bin/env python3
"""A stand-in for the API server of a Kubernetes cluster, with a scheduler and nodes: the few calls that Tidemill makes.

What it answers has the shape of core/v1 (tests/kubernetes/shape.py asks it with the official Python client). A pod is a
real process group of this machine, with its Secrets in folders (which change as a kubelet changes them: when the pod is
patched, or a minute later); deleting or evicting it is SIGTERM, and SIGKILL after its grace period; a node has room for one pod, and without a free node a pod is Pending and Unschedulable.

    fake_api.py FOLDER NODES     writes FOLDER/kubeconfig (TLS, a token; context plugin: a credential plugin), prints "ready PORT", ends with its input

Faults are asked for at /fake/... with the token (see FOLDER/control): nodes?count=N, clear,
fail?status=503&times=3&method=POST&kind=pods (status 0: the call is done, but the connection is cut before its answer),
node-lost?instance=N, kill?instance=N, evict?instance=N. What is asked to be made is kept in FOLDER/posted, a body a line.
"""
import base64
import datetime
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import uuid
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

TOKEN = "fake-token-" + uuid.uuid4().hex
SPACE = "training"
SYNC_S = 60.0  # how often a kubelet looks at a pod whose object has not changed
LOST_S = 1.0  # from a node's silence to the eviction of its pods; 40 s and the pod's toleration on a real cluster


CONTROL = r"""#!/usr/bin/env bash
# Orders to the stand-in: prints how many pods run ("alive"), how many objects there are ("left"), a number of which
# pods those are ("same"), or 0.
what=$1
case $1 in
stay | hold | wrong) : >"FOLDER/$1" && echo 0 && exit ;;
go) rm -f "FOLDER/stay" && echo 0 && exit ;;
life) echo "$2" >"FOLDER/life" && echo 0 && exit ;;
unhold) rm "FOLDER/hold" && echo 0 && exit ;;
plugins) wc -l <"FOLDER/plugins" && exit ;;
nodes) order="nodes?count=$2" ;;
fail) order="fail?status=$2&times=$3&method=$4&kind=$5" ;;
alive | left | same | clear | show) order=$1 ;;
*) order="$1?instance=$2" ;;
esac
answer=$(curl -sS --fail --cacert "FOLDER/ca.crt" -H "Authorization: Bearer $(cat "FOLDER/token")" \
    "https://127.0.0.1:PORT/fake/$order") || exit 1
case $what in
show) echo "$answer" ;;
alive | left | same) sed -nE "s/.*\"$what\": ([0-9]+).*/\1/p" <<<"$answer" ;;
*) echo 0 ;;
esac
"""


# A credential plugin, as those of EKS, GKE and AKS are: its token lasts for so many seconds ("life"); it waits while there is a
# file "hold", and its token is wrong once where there is a file "wrong".
PLUGIN = r"""#!/usr/bin/env bash
grep -q '"interactive": *false' <<<"$KUBERNETES_EXEC_INFO" && [ "$WORD" = "a word" ] || exit 7
echo asked >>"FOLDER/plugins"
while [ -e "FOLDER/hold" ]; do sleep 0.05; done
token=$(cat "FOLDER/token")
rm "FOLDER/wrong" 2>/dev/null && token=wrong
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s","expirationTimestamp":"%s"}}' \
    "$token" "$(date -u -d "+$(cat "FOLDER/life") seconds" +%FT%TZ)"
"""


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def stamp(when):
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


class Refused(Exception):
    def __init__(self, code, reason, message):
        super().__init__(message)
        self.code, self.reason = code, reason


class Cluster:
    def __init__(self, folder, nodes):
        self.folder = folder
        self.nodes = nodes
        self.lock = threading.RLock()
        self.objects = {"pods": {}, "secrets": {}}
        self.processes = {}
        self.faults = []
        self.lost = {}
        self.version = 1
        self.calls = []

    # ---- objects ----

    def add(self, kind, given):
        metadata = given.get("metadata") or {}
        name = metadata.get("name")
        if not name:
            raise Refused(422, "Invalid", f"{kind} \"\" is invalid: metadata.name: Required value")
        if name in self.objects[kind]:
            raise Refused(409, "AlreadyExists", f"{kind} \"{name}\" already exists")
        self.version += 1
        metadata.update(uid=str(uuid.uuid4()), namespace=SPACE, creationTimestamp=stamp(now()),
                        resourceVersion=str(self.version))
        thing = {"apiVersion": "v1", "metadata": metadata}
        if kind == "secrets":
            data = dict(given.get("data") or {})
            for key, value in (given.get("stringData") or {}).items():
                data[key] = base64.b64encode(value.encode()).decode()
            thing.update(kind="Secret", type=given.get("type", "Opaque"), data=data)
        else:
            spec = given.get("spec") or {}
            if not spec.get("containers"):
                raise Refused(422, "Invalid", f"Pod \"{name}\" is invalid: spec.containers: Required value")
            spec.setdefault("terminationGracePeriodSeconds", 30)
            thing.update(kind="Pod", spec=spec, status={"phase": "Pending", "conditions": []})
        self.objects[kind][name] = thing
        return thing

    def patch(self, kind, name, given):
        """A merge patch of what we know to be changed: labels and annotations, and a Secret's data."""
        thing = self.one(kind, name)
        self.version += 1
        for key in ("labels", "annotations"):
            thing["metadata"].setdefault(key, {}).update((given.get("metadata") or {}).get(key) or {})
        for key, value in (given.get("stringData") or {}).items():
            thing["data"][key] = base64.b64encode(value.encode()).decode()
        thing["metadata"]["resourceVersion"] = str(self.version)
        if kind == "pods" and name in self.processes:
            self.show_volumes(name, thing)
        return thing

    def one(self, kind, name):
        if name not in self.objects[kind]:
            raise Refused(404, "NotFound", f"{kind} \"{name}\" not found")
        return self.objects[kind][name]

    def chosen(self, kind, selector):
        wanted = [pair.split("=", 1) for pair in (selector or "").split(",") if pair]
        return [o for o in self.objects[kind].values()
                if all((o["metadata"].get("labels") or {}).get(k) == v for k, v in wanted)]

    def remove(self, kind, name, grace=None):
        thing = self.one(kind, name)
        if kind == "secrets":
            del self.objects[kind][name]
            return thing
        if grace is None:
            grace = thing["spec"]["terminationGracePeriodSeconds"]
        process = self.processes.get(name)
        if grace == 0 or process is None or process.poll() is not None:
            self.signal(name, signal.SIGKILL)
            self.forget(name)
            return thing
        end = time.monotonic() + grace
        if "deletionTimestamp" in thing["metadata"]:
            thing["fake_end"] = min(end, thing["fake_end"])
            return thing
        thing["metadata"]["deletionTimestamp"] = stamp(now() + datetime.timedelta(seconds=grace))
        thing["metadata"]["deletionGracePeriodSeconds"] = grace
        thing["fake_end"] = end
        if name not in self.lost:
            self.signal(name, signal.SIGTERM)
        return thing

    def evict(self, name, reason="EvictionByEvictionAPI"):
        pod = self.one("pods", name)
        pod["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True", "reason": reason,
                                            "message": "eviction", "lastTransitionTime": stamp(now())})
        self.remove("pods", name)

    def newest(self, instance):
        return [n for n, p in self.objects["pods"].items()
                if (p["metadata"].get("labels") or {}).get("tidemill.io/instance") == instance][-1]

    # ---- nodes ----

    def signal(self, name, number):
        process = self.processes.get(name)
        if process is None or process.poll() is not None:
            return
        try:  # as the runtime: SIGTERM to the container's first process, SIGKILL to all
            if number == signal.SIGKILL:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        except ProcessLookupError:
            pass

    def forget(self, name):
        process = self.processes.pop(name, None)
        if process is not None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self.objects["pods"].pop(name, None)
        self.lost.pop(name, None)

    def variables(self, pod):
        result = {}
        for one in pod["spec"]["containers"][0].get("env") or []:
            source = one.get("valueFrom") or {}
            if "secretKeyRef" in source:
                ref = source["secretKeyRef"]
                result[one["name"]] = base64.b64decode(self.objects["secrets"][ref["name"]]["data"][ref["key"]]).decode()
            elif "fieldRef" in source:
                result[one["name"]] = {"status.podIP": "127.0.0.1"}[source["fieldRef"]["fieldPath"]]
            else:
                result[one["name"]] = one.get("value", "")
        return result

    def show_volumes(self, name, pod):
        """Secrets as files, each changed in one go, as a kubelet does it."""
        for volume in pod["spec"].get("volumes") or []:
            source = volume["secret"]
            if source["secretName"] not in self.objects["secrets"]:
                continue
            data = self.objects["secrets"][source["secretName"]]["data"]
            folder = os.path.join(self.folder, "volumes", name, volume["name"])
            os.makedirs(folder, exist_ok=True)
            for item in source.get("items") or [{"key": key, "path": key} for key in data]:
                path = os.path.join(folder, item["path"])
                with open(path + ".new", "wb") as out:
                    out.write(base64.b64decode(data[item["key"]]))
                os.rename(path + ".new", path)
        pod["fake_shown"] = time.monotonic()

    def start(self, name, pod, node):
        container = pod["spec"]["containers"][0]
        self.show_volumes(name, pod)
        variables = self.variables(pod)
        words = list(container.get("command") or []) + list(container.get("args") or [])
        for mount in container.get("volumeMounts") or []:  # a path of its own file system is a folder of this machine
            folder = os.path.join(self.folder, "volumes", name, mount["name"])
            variables = {key: value.replace(mount["mountPath"], folder) for key, value in variables.items()}
            words = [word.replace(mount["mountPath"], folder) for word in words]
        for key, value in variables.items():
            words = [word.replace(f"$({key})", value) for word in words]
        home = os.path.join(self.folder, "pods", name)
        os.makedirs(home, exist_ok=True)
        with open(os.path.join(self.folder, "logs-" + name), "ab") as log:
            self.processes[name] = subprocess.Popen(
                words, env={**os.environ, "KUBERNETES_SERVICE_HOST": "127.0.0.1", **variables, "HOME": home, "TMPDIR": home, "HOSTNAME": name},
                cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        pod["spec"]["nodeName"] = node
        pod["status"] = {
            "phase": "Running", "podIP": "127.0.0.1", "hostIP": "127.0.0.1", "startTime": stamp(now()),
            "conditions": [{"type": t, "status": "True", "lastTransitionTime": stamp(now())}
                           for t in ("PodScheduled", "Initialized", "ContainersReady", "Ready")],
            "containerStatuses": [{"name": container["name"], "image": container["image"], "imageID": "fake", "ready": True,
                                   "restartCount": 0, "state": {"running": {"startedAt": stamp(now())}}}]}

    def place(self, name, pod):
        taken = {p["spec"].get("nodeName") for p in self.objects["pods"].values()
                 if p["status"]["phase"] in ("Running", "Pending")}
        free = [f"node-{i}" for i in range(self.nodes) if f"node-{i}" not in taken]
        if free:
            self.start(name, pod, free[0])
        elif not pod["status"]["conditions"]:
            pod["status"]["conditions"] = [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": stamp(now()),
                 "message": f"0/{self.nodes} nodes are available: {self.nodes} Insufficient nvidia.com/gpu."}]

    def look(self, name, pod):
        process = self.processes[name]
        status = process.poll()
        if name in self.lost:  # nobody on the node says anything
            if time.monotonic() >= self.lost[name] and "deletionTimestamp" not in pod["metadata"]:
                self.evict(name, "DeletionByTaintManager")
            return
        if status is None:
            if "fake_end" in pod and time.monotonic() >= pod["fake_end"]:
                self.forget(name)
            elif time.monotonic() - pod["fake_shown"] >= SYNC_S:
                self.show_volumes(name, pod)
            return
        if "deletionTimestamp" in pod["metadata"]:
            self.forget(name)
            return
        if pod["status"]["phase"] == "Running":
            code = status if status >= 0 else 128 - status
            pod["status"]["phase"] = "Succeeded" if code == 0 else "Failed"
            pod["status"]["containerStatuses"][0].update(
                ready=False, state={"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error",
                                                   "startedAt": stamp(now()), "finishedAt": stamp(now())}})

    def serve(self):
        while True:
            with self.lock:
                for name, pod in list(self.objects["pods"].items()):
                    if pod["status"]["phase"] == "Pending":
                        self.place(name, pod)
                    elif name in self.processes:
                        self.look(name, pod)
            time.sleep(0.02)

    # ---- faults ----

    def fault(self, method, kind):
        for fault in self.faults:
            if fault["times"] > 0 and fault["method"] in ("", method) and fault["kind"] in ("", kind):
                fault["times"] -= 1
                return fault["status"]
        return None

    def order(self, what, query):
        if "instance" in query:
            query["name"] = self.newest(query["instance"])
        if what == "nodes":
            self.nodes = int(query["count"])
        elif what == "fail":
            self.faults.append({"status": int(query["status"]), "times": int(query["times"]),
                                "method": query.get("method", ""), "kind": query.get("kind", "")})
        elif what == "clear":
            self.faults = []
        elif what == "kill":
            self.signal(query["name"], signal.SIGKILL)
        elif what == "evict":
            self.evict(query["name"])
        elif what == "node-lost":
            self.lost[query["name"]] = time.monotonic() + LOST_S
            self.signal(query["name"], signal.SIGKILL)
        left = len(self.objects["pods"]) + len(self.objects["secrets"])
        uids = "".join(sorted(p["metadata"]["uid"] for p in self.objects["pods"].values()))
        return {"left": left, "same": zlib.crc32(uids.encode()) >> 1, "alive": sum(p.poll() is None for p in self.processes.values()),
                "pods": {n: p["status"]["phase"] for n, p in self.objects["pods"].items()},
                "secrets": sorted(self.objects["secrets"]), "calls": self.calls[-1000:]}


RESOURCES = {"v1": [("pods", "Pod", True), ("secrets", "Secret", True), ("services", "Service", True),
                    ("serviceaccounts", "ServiceAccount", True), ("configmaps", "ConfigMap", True)],
             "policy/v1": [("poddisruptionbudgets", "PodDisruptionBudget", True)],
             "scheduling.k8s.io/v1": [("priorityclasses", "PriorityClass", False)],
             "rbac.authorization.k8s.io/v1": [("roles", "Role", True), ("rolebindings", "RoleBinding", True)]}


def discover(path):
    """What kubectl asks first: which kinds there are."""
    if path == "/version":
        return {"major": "1", "minor": "32", "gitVersion": "v1.32.0", "platform": "linux/amd64"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [
            {"name": g.split("/")[0], "versions": [{"groupVersion": g, "version": "v1"}],
             "preferredVersion": {"groupVersion": g, "version": "v1"}} for g in RESOURCES if "/" in g]}
    group = path.removeprefix("/apis/") if path.startswith("/apis/") else path.removeprefix("/api/")
    if group in RESOURCES:
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": [
            {"name": n, "singularName": k.lower(), "kind": k, "namespaced": s, "verbs": ["create", "get", "list", "patch", "delete"]}
            for n, k, s in RESOURCES[group]]}
    return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster = None

    def log_message(self, *_):
        pass

    def answer(self, code, body):
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if code == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(text)

    def refuse(self, refused):
        self.answer(refused.code, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                                   "message": str(refused), "reason": refused.reason, "code": refused.code})

    def handle_call(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        parts = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(parts.query).items()}
        if self.headers.get("Authorization") != "Bearer " + TOKEN:
            raise Refused(401, "Unauthorized", "Unauthorized")
        if parts.path.startswith("/fake/"):
            with self.cluster.lock:
                return 200, self.cluster.order(parts.path[6:], query)
        found = discover(parts.path) if self.command == "GET" else None
        if found is not None:
            return 200, found
        words = parts.path.strip("/").split("/")
        if len(words) < 5 or words[:3] != ["api", "v1", "namespaces"] or words[4] not in ("pods", "secrets"):
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        if words[3] != SPACE:
            raise Refused(403, "Forbidden", f"{words[4]} is forbidden: User \"fake\" cannot use resource \"{words[4]}\" "
                          f"in API group \"\" in the namespace \"{words[3]}\"")
        with self.cluster.lock:
            self.cluster.calls.append(f"{self.command} {self.path}")
            fault = self.cluster.fault(self.command, words[4])
            if fault:
                raise Refused(fault, "InternalError", f"a fault was asked for: {fault}")
            result = self.do_call(words[4], words[5:], query, body)
            if fault == 0:
                raise ConnectionAbortedError
            return result

    def do_call(self, kind, words, query, body):
        cluster = self.cluster
        clean = lambda o: {k: v for k, v in o.items() if not k.startswith("fake_")}
        if self.command == "POST" and not words:
            with open(os.path.join(cluster.folder, "posted"), "a", encoding="utf-8") as out:
                out.write(json.dumps(body) + "\n")
            return 201, clean(cluster.add(kind, body))
        if self.command == "POST" and words[1:] == ["eviction"]:
            cluster.evict(words[0])
            return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}
        if self.command == "GET" and not words:
            items = [clean(o) for o in cluster.chosen(kind, query.get("labelSelector"))]
            return 200, {"kind": kind[:-1].capitalize() + "List", "apiVersion": "v1",
                         "metadata": {"resourceVersion": str(cluster.version)}, "items": items}
        if self.command == "GET":
            return 200, clean(cluster.one(kind, words[0]))
        if self.command == "PATCH" and len(words) == 1:
            if self.headers.get("Content-Type") not in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
                raise Refused(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
            return 200, clean(cluster.patch(kind, words[0], body))
        grace = query.get("gracePeriodSeconds", body.get("gracePeriodSeconds"))
        grace = None if grace is None else int(grace)
        if self.command == "DELETE" and words:
            return 200, clean(cluster.remove(kind, words[0], grace))
        if self.command == "DELETE":
            for thing in cluster.chosen(kind, query.get("labelSelector")):
                cluster.remove(kind, thing["metadata"]["name"], grace)
            return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 200}
        raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def do_any(self):
        try:
            code, body = self.handle_call()
        except Refused as refused:
            return self.refuse(refused)
        except ConnectionAbortedError:
            self.close_connection = True
            self.connection.close()
            return None
        return self.answer(code, body)

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = do_any


def certificate(folder):
    """An authority of its own, and the server's certificate, as a cluster has them."""
    run = lambda *words: subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    run("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=fake-cluster-ca", "-days", "2")
    run("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=kube-apiserver")
    with open(os.path.join(folder, "names"), "w", encoding="utf-8") as out:
        out.write("subjectAltName=IP:127.0.0.1\n")
    run("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "names", "-out", "server.crt")


def main():
    folder, nodes = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    os.makedirs(folder, exist_ok=True)
    certificate(folder)
    cluster = Cluster(folder, nodes)
    Handler.cluster = cluster
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(folder, "server.crt"), os.path.join(folder, "server.key"))
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with open(os.path.join(folder, "ca.crt"), "rb") as file:
        authority = base64.b64encode(file.read()).decode()
    with open(os.path.join(folder, "token"), "w", encoding="utf-8") as out:
        out.write(TOKEN)
    with open(os.path.join(folder, "kubeconfig"), "w", encoding="utf-8") as out:
        json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "fake",
                   "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{server.server_port}",
                                                           "certificate-authority-data": authority}}],
                   "users": [{"name": "u", "user": {"token": TOKEN}},
                             {"name": "p", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin",
                                                             "interactiveMode": "Never", "env": [{"name": "WORD", "value": "a word"}]}}}],
                   "contexts": [{"name": "fake", "context": {"cluster": "c", "user": "u", "namespace": SPACE}},
                                {"name": "plugin", "context": {"cluster": "c", "user": "p", "namespace": SPACE}}]}, out)
    open(os.path.join(folder, "plugins"), "w", encoding="utf-8").close()
    for name, text in (("control", CONTROL), ("plugin", PLUGIN)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            out.write(text.replace("FOLDER", folder).replace("PORT", str(server.server_port)))
        os.chmod(os.path.join(folder, name), 0o700)
    threading.Thread(target=cluster.serve, daemon=True).start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", server.server_port, flush=True)
    sys.stdin.read()
    with cluster.lock:
        for name in list(cluster.processes):
            cluster.forget(name)


if __name__ == "__main__":
    main()

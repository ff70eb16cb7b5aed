"""A stand-in for SkyPilot's SDK: the few functions that python/tidemill/skypilot.py calls, with clusters that are processes of this
machine. tests/skypilot/accept.py holds their arguments and answers against the installed SkyPilot's own.

State is in the folder FAKE_SKY: a file for each cluster. A launch returns at once; a process of its own then brings the cluster up
(PENDING, INIT, UP) and runs the task's `run` in a home of its own. Orders of a test: `python3 -m sky ORDER NAME`.
"""
import enum
import json
import os
import signal
import subprocess
import sys
import time
import types
import uuid

ROOT = os.environ["FAKE_SKY"]


class StatusRefreshMode(enum.Enum):
    NONE = "NONE"
    AUTO = "AUTO"
    FORCE = "FORCE"


class ClusterStatus(enum.Enum):
    INIT = "INIT"
    UP = "UP"
    STOPPED = "STOPPED"


class exceptions:  # pylint: disable=invalid-name  # a module of SkyPilot's
    class ClusterDoesNotExist(ValueError):
        pass

    class ClusterNotUpError(ValueError):
        pass


class JobStatus(enum.Enum):
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    def is_terminal(self):
        return self != JobStatus.RUNNING


class Task:
    def __init__(self, config):
        self.config = config

    @staticmethod
    def from_yaml_config(config):
        unknown = set(config) - {"name", "num_nodes", "resources", "envs", "secrets", "setup", "workdir", "file_mounts", "config", "run"}
        if unknown:
            raise ValueError(f"unknown keys: {unknown}")
        return Task(config)


def path_of(name):
    return os.path.join(ROOT, name + ".json")


def read(name):
    try:
        with open(path_of(name), encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def write(name, record):
    new = f"{path_of(name)}.{uuid.uuid4().hex}"
    with open(new, "w", encoding="utf-8") as file:
        json.dump(record, file)
    os.rename(new, path_of(name))


def everything():
    names = [n[:-5] for n in sorted(os.listdir(ROOT)) if n.endswith(".json")]
    return [record for record in map(read, names) if record]


def launch(task, cluster_name=None, idle_minutes_to_autostop=None, down=False):  # pylint: disable=redefined-outer-name
    assert idle_minutes_to_autostop and down
    if os.path.exists(os.path.join(ROOT, "refuse")):
        raise ValueError("there is no such accelerator")
    if os.path.exists(os.path.join(ROOT, "hold")):  # a server that takes its time
        with open(os.path.join(ROOT, "held.new"), "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
        os.rename(file.name, os.path.join(ROOT, "held"))
    while os.path.exists(os.path.join(ROOT, "hold")):
        time.sleep(0.05)
    request = uuid.uuid4().hex
    write(cluster_name, {"name": cluster_name, "status": "PENDING", "request": request, "config": task.config, "pid": 0})
    with open(os.path.join(ROOT, "log-" + cluster_name), "ab") as log:
        subprocess.Popen([sys.executable, "-m", "sky", "bring-up", cluster_name], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                         start_new_session=True)
    return request


def status(cluster_names=None, refresh=StatusRefreshMode.NONE):
    assert isinstance(refresh, StatusRefreshMode)
    return [types.SimpleNamespace(name=r["name"], status=ClusterStatus(r["status"]), init_kind=None, region="here", handle=None,
                                  init_status_reason=None)
            for r in everything() if r["status"] != "PENDING" and (not cluster_names or r["name"] in cluster_names)]


def get(request):
    return request


def api_status():
    return [types.SimpleNamespace(request_id=r["request"], name="sky.launch", cluster_name=r["name"], status="PENDING")
            for r in everything() if r["status"] == "PENDING"]


def remove(name):
    record = read(name)
    if record is None:
        return
    with open(os.path.join(ROOT, "gone-" + name), "w", encoding="utf-8"):
        pass
    os.remove(path_of(name))
    if record["pid"]:
        try:
            os.killpg(record["pid"], signal.SIGKILL)
        except ProcessLookupError:
            pass


def up(cluster_name):
    record = read(cluster_name)
    if record is None:
        raise exceptions.ClusterDoesNotExist(cluster_name)
    if record["status"] != "UP":
        raise exceptions.ClusterNotUpError(cluster_name)
    return record


def cancel(cluster_name, all=False):  # pylint: disable=redefined-builtin
    assert all
    record = up(cluster_name)
    if record["pid"]:
        try:
            os.killpg(record["pid"], signal.SIGKILL)
        except ProcessLookupError:
            pass
    write(cluster_name, {**record, "pid": 0})
    return "request"


def exec(task, cluster_name=None):  # pylint: disable=redefined-builtin
    record = up(cluster_name)
    if os.path.exists(os.path.join(ROOT, "status-" + cluster_name)):
        os.remove(os.path.join(ROOT, "status-" + cluster_name))
        record["pid"] = 0
    assert not record["pid"], "its job would wait until the one that runs has ended"
    with open(os.path.join(ROOT, "log-" + cluster_name), "ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "sky", "run", cluster_name], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   start_new_session=True)
    write(cluster_name, {**record, "config": {**task.config, "file_mounts": record["config"]["file_mounts"]}, "pid": process.pid,
                         "runs": record.get("runs", 1) + 1})
    return "request"


def job_status(cluster_name):
    """Of the last job. What it ended with is in the file that its shell leaves (run)."""
    up(cluster_name)
    try:
        with open(os.path.join(ROOT, "status-" + cluster_name), encoding="utf-8") as file:
            return {1: JobStatus.SUCCEEDED if file.read().strip() == "0" else JobStatus.FAILED}
    except FileNotFoundError:
        return {1: JobStatus.RUNNING}


def api_cancel(request_ids):
    for record in everything():
        if record["request"] in request_ids and record["status"] == "PENDING":
            remove(record["name"])


def down(cluster_name):
    if read(cluster_name) is None:
        raise exceptions.ClusterDoesNotExist(cluster_name)
    remove(cluster_name)
    return "request"


def move_on(name, record):
    """Unless somebody has taken it down meanwhile."""
    write(name, record)
    if os.path.exists(os.path.join(ROOT, "gone-" + name)):
        os.remove(path_of(name))
        sys.exit(0)


def bring_up(name):
    """In a process of its own, which becomes what runs on the cluster."""
    record = read(name)
    if record is None:
        return
    config = record["config"]
    if os.path.exists(os.path.join(ROOT, "full")):  # no capacity anywhere: SkyPilot removes what it could not bring up
        remove(name)
        return
    home = os.path.join(ROOT, "home-" + name)
    os.makedirs(home, exist_ok=True)
    record["pid"] = os.getpid()  # leads its session
    record["status"] = "INIT"
    move_on(name, record)
    for target, source in config["file_mounts"].items():
        if not target.startswith("~"):
            continue
        target = os.path.join(home, target[2:])
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.symlink(source, target)
    if config.get("setup"):
        run(name, config, "setup")
    record["status"] = "UP"
    move_on(name, record)
    run(name, config)


def run(name, config, what="run"):
    """The task's command, in the cluster's home; how it ended is left for job_status."""
    home = os.path.join(ROOT, "home-" + name)
    variables = {**(config.get("envs") or {}), **(config.get("secrets") or {}), "SKYPILOT_NODE_IPS": "127.0.0.1",
                 "SKYPILOT_CLUSTER_INFO": json.dumps({"cluster_name": name, "cloud": "Local"}), "HOME": home, "TMPDIR": home}
    os.chdir(home)
    environment = {**os.environ, **{k: str(v) for k, v in variables.items()}}
    if what == "setup":
        subprocess.run(["bash", "-c", config["setup"]], env=environment, check=True)
        return
    words = ["bash", "-c", 'bash -c "$1"; echo $? >"$2"', "bash", config["run"], os.path.join(ROOT, "status-" + name)]
    os.execvpe("bash", words, environment)


def alive():
    count = 0
    for record in everything():
        try:
            os.kill(record["pid"] or -1, 0)
            count += bool(record["pid"])
        except (ProcessLookupError, PermissionError):
            pass
    return count

"""SkyPilot as a cloud of `tidemill run --cloud skypilot`: one call of this program is one order, and one answer.

    skypilot.py list PREFIX [ends]
    skypilot.py create NAME TASK FOLDER PROGRAM MARKET TICKET [INSTANCE INFRA]    (TICKET: a file, which is removed)
    skypilot.py adopt NAME ...                    (as create)
    skypilot.py delete NAME

It talks to SkyPilot's API server by SkyPilot's own Python SDK, which has typed answers; the `sky` command prints for people.
Nothing waits for a cluster: a launch is asked for, and the next list says what became of it. The answer is one line,
"TM-ANSWER " and JSON; whatever SkyPilot prints beside it is left alone. Who asked must stay to read it: else the program ends.

TASK is a SkyPilot task or a Tidemill job, which has the same words for what is rented: resources, envs, secrets, setup, workdir,
file_mounts, config and volumes go to SkyPilot as they are. A cluster has one node, which runs Tidemill's agent in place of the task's `run`.
With "ends" a list also asks each cluster that is up whether its agent has ended, which the cluster does not; that takes a connection to
each. A cluster that an earlier run of Tidemill left is adopted: what runs on it is cancelled, and an agent with the new ticket is started by
`sky exec`, so nothing is rented, set up or brought again.
A pool of the job says which INSTANCE type, and where (INFRA: cloud/region/zone, "" where SkyPilot chooses), in place of what resources say of
those.
"""
import json
import os
import select
import sys
import threading

KEPT = ("resources", "envs", "secrets", "setup", "workdir", "file_mounts", "config", "volumes")
IDLE_MINUTES = 10  # after its agent has ended a cluster goes by itself, if nobody is there to end it
RUN = """chmod +x ~/.tidemill-agent/tidemill
here=$(echo "$SKYPILOT_NODE_IPS" | sed -n 1p)
case "${SKYPILOT_CLUSTER_INFO:-}" in
*AWS*) notice=aws ;;
*GCP*) notice=gcp ;;
*Azure*) notice=azure ;;
*) notice=none ;;
esac
exec ~/.tidemill-agent/tidemill agent --host "$here" --notice "$notice"
"""


def field(thing, name):
    """Of a record: SkyPilot's are models in some releases and dictionaries in others."""
    return thing.get(name) if isinstance(thing, dict) else getattr(thing, name, None)


def word(value):
    """The plain name of an enumeration's value, or of a text."""
    return str(getattr(value, "value", value) or "").upper()


def in_market(resources, use_spot):
    """The user's resources, all in one market: each entry of any_of or ordered has its word over what stands above it."""
    found = {**resources, "use_spot": use_spot}
    for key in ("any_of", "ordered"):
        if not found.get(key):
            continue
        entries = []
        for entry in found[key]:
            entry = {**(entry or {}), "use_spot": use_spot}
            if entry not in entries:  # that differed by its market alone
                entries.append(entry)
        found[key] = entries
    return found


def of_pool(resources, instance, infra):
    """The user's resources with one instance type at one place: what else chooses between machines or places goes."""
    dropped = ("any_of", "ordered", "accelerators", "cpus", "memory", "instance_type") + (("infra", "cloud", "region", "zone") if infra else ())
    found = {key: value for key, value in resources.items() if key not in dropped}
    host, _, gpus = instance.partition("+")  # on GCP "HOST+COUNTxGPU": a host may carry several kinds
    found["instance_type"] = host
    if gpus:
        count, _, gpu = gpus.partition("x")
        found["accelerators"] = f"{gpu}:{count}"
    if infra:
        found["infra"] = infra
    return found


def task_config(document, name, folder, program, market, ticket, instance="", infra=""):
    """The task of one cluster: what the user says of machines, and an agent that joins."""
    config = {key: document[key] for key in KEPT if document.get(key) is not None}
    config["name"] = name
    config["num_nodes"] = 1
    resources = config.get("resources") or {}
    config["resources"] = in_market(of_pool(resources, instance, infra) if instance else resources, market == "spot")
    mounts = dict(config.get("file_mounts") or {})
    mounts["~/.tidemill-agent/tidemill"] = program
    if document.get("run"):  # the worker runs where the job stands, by the same name
        mounts.setdefault(folder, folder)
    config["file_mounts"] = mounts
    config["secrets"] = {**(config.get("secrets") or {}), "TIDEMILL_TICKET": ticket}
    config["run"] = RUN
    return config


def price_of(record):
    """Dollars an hour, where SkyPilot's catalogue says; None: it does not."""
    try:
        handle = field(record, "handle")
        return handle.launched_resources.get_cost(3600) * handle.launched_nodes
    except Exception:  # pylint: disable=broad-except  # a price is good to know, not more
        return None


def row_of(record):
    status = word(field(record, "status"))
    kind = word(field(record, "init_kind"))
    phase = {"UP": "running", "INIT": "pending"}.get(status, "ended")
    if status == "INIT" and kind == "UNHEALTHY":  # a node is gone, or does not answer
        phase = "ended"
    return {"name": field(record, "name"), "phase": phase, "zone": field(record, "region") or "", "price": price_of(record),
            "words": (field(record, "init_status_reason") or "") if phase == "ended" else ""}


def open_requests(sky, prefix):
    """Launches that the API server has not finished: their clusters may not be in its table yet."""
    found = {}
    for request in sky.api_status():
        name = field(request, "cluster_name") or ""
        if name.startswith(prefix) and "launch" in (field(request, "name") or "") \
                and word(field(request, "status")) in ("PENDING", "RUNNING"):
            found.setdefault(name, []).append(field(request, "request_id"))
    return found


def mark_ended(sky, found):
    """Clusters whose last job, the agent, has ended: in order, or not. One that cannot be asked is as it was."""
    asked = [(row, sky.job_status(row["name"])) for row in found if row["phase"] == "running"]
    for row, request in asked:
        try:
            status = next(iter((sky.get(request) or {}).values()), None)
        except Exception:  # pylint: disable=broad-except
            continue
        if status is not None and status.is_terminal():
            row.update(phase="ended", status=0 if word(status) == "SUCCEEDED" else 1)


def rows(sky, prefix, ends=""):
    requests = open_requests(sky, prefix)  # before the table: one that ends meanwhile is in it
    records = sky.get(sky.status(refresh=sky.StatusRefreshMode.AUTO))
    found = {row["name"]: row for row in map(row_of, records) if row["name"].startswith(prefix)}
    for name in requests:
        found.setdefault(name, {"name": name, "phase": "pending"})
    if ends:
        mark_ended(sky, found.values())
    return list(found.values())


def read_task(sky, name, path, folder, program, market, ticket_file, *pool):
    import yaml  # SkyPilot needs it, too

    with open(ticket_file, encoding="utf-8") as file:
        ticket = file.read().strip()
    os.remove(ticket_file)
    with open(path, encoding="utf-8") as file:
        document = yaml.safe_load(file) or {}
    os.chdir(folder)  # names of files are meant from there
    return sky.Task.from_yaml_config(task_config(document, name, folder, program, market, ticket, *pool))


def create(sky, name, *words):
    sky.launch(read_task(sky, name, *words), cluster_name=name, idle_minutes_to_autostop=IDLE_MINUTES, down=True)
    return {"outcome": "done"}


def adopt(sky, name, *words):
    """Waits for both: only then is it known that the cluster took the order, and one of the two after the other."""
    task = read_task(sky, name, *words)
    try:
        sky.get(sky.cancel(name, all=True))
        sky.get(sky.exec(task, cluster_name=name))
    except sky.exceptions.ClusterDoesNotExist:
        return {"outcome": "gone"}
    return {"outcome": "done"}


def delete(sky, name):
    requests = open_requests(sky, name).get(name)
    records = sky.get(sky.status(cluster_names=[name]))
    if not requests and not records:
        return {"outcome": "gone"}
    if requests:
        sky.api_cancel(requests)
    if records:
        sky.down(name)
    return {"outcome": "done"}


def answer(words):
    try:
        import sky
    except ImportError as error:
        return {"outcome": "missing", "words": f"{error} ({sys.executable})"}
    try:
        if words[0] == "list":
            return {"outcome": "done", "rows": rows(sky, *words[1:])}
        if words[0] in ("create", "adopt"):
            return (create if words[0] == "create" else adopt)(sky, *words[1:])
        return delete(sky, words[1])
    except Exception as error:  # pylint: disable=broad-except  # what SkyPilot says is the answer
        kind = type(error).__name__
        final = kind in ("ValueError", "InvalidSkyPilotConfigError", "NoCloudAccessError", "ResourcesUnavailableError", "TypeError",
                         "InvalidClusterNameError", "NotSupportedError", "ClusterNotUpError", "ResourcesMismatchError", "PermissionDeniedError", "FileNotFoundError")
        return {"outcome": "refused" if final else "no-answer", "words": f"{kind}: {error}"[:240]}


def end_with_reader():
    """Nobody reads the answer any more: Tidemill was killed. What it asked for is not to be done later, behind its successor's back."""
    watch = select.poll()
    watch.register(sys.stdout.fileno(), 0)  # the end of a pipe alone is told then
    watch.poll()
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_reader, daemon=True).start()
    print("\nTM-ANSWER " + json.dumps(answer(sys.argv[1:])), flush=True)

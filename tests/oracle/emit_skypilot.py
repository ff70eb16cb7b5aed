"""SkyPilot tasks that plan emits: against what SkyPilot's documentation says of its YAML (yaml-spec; SkyPilot 0.9 and 0.10),
and against SkyPilot itself where build/venv-sky has it and ../shared has a catalogue for it (skypilot/accept.py): tasks for every
shipped instance type that SkyPilot still has, and, by its optimizer, for the README's example and the cases below; and its dry run of one.

- a task is a map; its keys are among TASK; resources' keys are among RESOURCES, no others are accepted
- num_nodes is a whole number above 0, use_spot true or false, name, setup and run are texts, envs a map of texts or numbers
- infra is CLOUD[/REGION[/ZONE]], accelerators NAME or NAME:COUNT, and an instance_type is a text
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

TASK = {"name", "workdir", "num_nodes", "resources", "envs", "secrets", "file_mounts", "setup", "run", "config", "service"}
RESOURCES = {
    "infra", "cloud", "region", "zone", "accelerators", "accelerator_args", "cpus", "memory", "instance_type", "use_spot",
    "disk_size", "disk_tier", "network_tier", "image_id", "ports", "labels", "autostop", "any_of", "ordered",
    "job_recovery",
}  # fmt: skip
CLOUDS = "aws|azure|gcp|lambda"

tidemill, root = sys.argv[1:3]
job = """name: "a: job #1"
model: gpt2-124m
samples: 5000000
envs: {EMPTY: "", NUMBER: 7, TEXT: "true", QUOTES: "a \\"b\\" # c"}
setup: |
  pip install -r requirements.txt

  echo "done: # yes"
run: torchrun --nproc_per_node 8 train.py
"""
cases = [
    ["--deadline", "24h"],
    ["--deadline", "12h", "--market", "on-demand"],
    ["--deadline", "8h", "--mtbf", "2h", "--cloud", "aws", "--gpu", "T4,A10G"],
    ["--max-hourly", "6", "--objective", "fastest", "--quota", "g4dn.xlarge=3,g5.xlarge=2", "--gpu", "T4,A10G"],
    ["--deadline", "24h", "--cloud", "gcp"],
    ["--deadline", "24h", "--cloud", "azure"],
]


def wrong(task):
    extra = set(task) - TASK
    if extra:
        return f"keys {extra}"
    resources = task["resources"]
    extra = set(resources) - RESOURCES
    if extra:
        return f"resources' keys {extra}"
    if type(task["num_nodes"]) is not int or task["num_nodes"] < 1:
        return "num_nodes"
    if type(resources["use_spot"]) is not bool:
        return "use_spot"
    if not all(isinstance(task.get(key, ""), str) for key in ("name", "setup", "run", "workdir")):
        return "a text is none"
    if not re.fullmatch(rf"(?i:{CLOUDS})(?:/[^/]+(?:/[^/]+)?)?", resources["infra"]):
        return f"infra {resources['infra']}"
    if not re.fullmatch(r"[A-Za-z0-9-]+(:[0-9.]+)?", resources.get("accelerators", "none")):
        return f"accelerators {resources['accelerators']}"
    if not isinstance(resources["instance_type"], str):
        return "instance_type"
    envs = task.get("envs", {})
    if not all(isinstance(key, str) and isinstance(value, (str, int, float)) for key, value in envs.items()):
        return "envs"
    return None


README = ["--model", "gpt2-124m", "--samples", "5000000", "--deadline", "24h"]
RETIRED = ("p2.", "p3.", "g3.", "g3s.")  # of AWS: SkyPilot's catalogue does not have them any more


def call(*words, **more):
    return subprocess.run([tidemill, *words], capture_output=True, text=True, **more)


def emit(folder, name, *words):
    done = call("plan", *words, "--emit", "skypilot")
    if done.returncode == 0:
        with open(f"{folder}/{name}.yaml", "w") as file:
            file.write(done.stdout)
    return done


def emit_all(folder):
    """A task for every instance type with GPUs; of some no network is known, so one is made up for them."""
    os.environ["TIDEMILL_DATA_DIR"] = f"{folder}/data"
    offers = json.loads(call("catalog", "--all", "--json").stdout)["offers"]
    types = {(offer["cloud"], offer["instance"]) for offer in offers if offer["gpu"]}
    unknown = {(offer["cloud"], offer["instance"]) for offer in offers if offer["network_gbps"] is None}
    with open(f"{folder}/network.csv", "w") as file:
        file.write("cloud,instance_type,network_gbps\n" + "".join(f"{c},{i},10\n" for c, i in sorted(unknown)))
    call("catalog", "import", "-q", f"{folder}/network.csv", check=True)
    problems = []
    for cloud, name in sorted(types):
        words = ["--model", "resnet50", "--samples", "100000", "--anchors", "none", "--cloud", cloud, "--instance", name]
        done = emit(folder, f"{cloud}-{name}", *words)
        if done.returncode != (3 if name.startswith(RETIRED) else 0):
            problems.append(f"{name}: {done.stderr.strip()}")
    return len(types), problems


def ask_skypilot(folder):
    python = f"{root}/build/venv-sky/bin/python"
    catalogues = f"{root}/../shared/data/catalog"
    if not os.path.isdir(f"{root}/build/venv-sky/lib") or not os.path.isdir(catalogues):
        print("skipped: SkyPilot's own word (needs build/venv-sky, which make venv makes, and ../shared)")
        return []
    count, problems = emit_all(folder)
    if count < 150:
        problems.append(f"only {count} types were tried")
    job = f"{folder}/readme.job"
    with open(job, "w") as file:
        file.write(call("plan", *README, "--emit", "job").stdout)
    emit(folder, "optimize-readme", job, "--quota", "V100=8")
    if shutil.which("rsync"):
        done = emit(folder, "optimize-dry", *README, "--cloud", "aws", "--gpu", "T4,A10G")
        if done.returncode != 0:
            problems.append(f"a task to run dry: {done.stderr.strip()}")
    else:
        print("skipped: SkyPilot's dry run (needs rsync)")
    accept = f"{root}/tests/oracle/skypilot/accept.py"
    done = subprocess.run([python, accept, catalogues, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    problems += done.stdout.splitlines()
    if done.returncode != 0 and not done.stdout:
        problems.append(f"accept.py: {done.stderr[-500:]}")
    return problems


bad = 0
with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/job.yaml"
    with open(path, "w") as file:
        file.write(job)
    given = yaml.safe_load(job)
    for case in cases:
        done = subprocess.run([tidemill, "plan", path, "--emit", "skypilot", *case], capture_output=True, text=True)
        problems = [] if done.returncode == 0 else [done.stderr.strip()]
        tasks = list(yaml.safe_load_all(done.stdout)) if done.returncode == 0 else []
        for task in tasks:
            problems += [problem for problem in [wrong(task)] if problem]
            if not task["setup"].endswith("\n" + given["setup"]):
                problems.append(f"setup is {task['setup']!r}")
            if "exec ./tidemill agent --host" not in task["run"] or task["secrets"] != {"TIDEMILL_TICKETS": None}:
                problems.append(f"run is {task['run']!r}")  # a ticket for each node, and none in the file
            shell = subprocess.run(["bash", "-n"], input=task["run"], capture_output=True, text=True)
            problems += [shell.stderr] if shell.returncode != 0 else []
            if {key: str(value) for key, value in task["envs"].items()} != {k: str(v) for k, v in given["envs"].items()}:
                problems.append(f"envs are {task['envs']}")
        if done.returncode == 0 and (not tasks or tasks[0]["name"] != given["name"]):
            problems.append("name")
        for problem in problems:
            print(f"{' '.join(case)}: {problem}")
        bad += len(problems)
    with open(tidemill, "rb") as file:
        sanitized = re.search(rb"__[at]san_init", file.read())
    os.mkdir(f"{folder}/tasks")
    for problem in [] if sanitized else ask_skypilot(f"{folder}/tasks"):  # once is enough
        print(problem)
        bad += 1
sys.exit(bad > 0)

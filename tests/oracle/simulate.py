"""The simulator's ideal and reactive runs once more, from the files alone: models, paper costs, and made-up traces whose
events lie on minutes or on any second. Nothing is drawn in either, so samples, pauses and bills must be equal to 1e-9.
"""
import csv
import json
import os
import subprocess
import sys
import tempfile

import yaml

tidemill, root = sys.argv[1:3]
SPOT_USD_H = 0.91
with open(f"{root}/data/costs/paper.tmcost") as text:
    PAPER = yaml.safe_load(text)
POINTS = sorted((float(size), us / 1000) for size, us in PAPER["transfer_us"].items())


def transfer_ms(size):
    if size <= POINTS[0][0]:
        return POINTS[0][1]
    for (a, at_a), (b, at_b) in zip(POINTS, POINTS[1:]):
        if size <= b:
            return at_a + (at_b - at_a) * (size - a) / (b - a)
    return POINTS[-1][1] * size / POINTS[-1][0]


class Job:
    def __init__(self, name):
        self.cost = PAPER["models"][name]
        with open(f"{root}/data/models/{name}.tmmodel") as text:
            lines = [line.strip() for line in text if not line.startswith("#")]
        start, points = lines.index(""), lines.index("[throughput]")
        states = next(int(line.split(":")[1]) for line in lines[:start] if line.startswith("optimizer-states"))
        layers = [row for row in csv.DictReader(line for line in lines[start + 1 : points] if line)]
        self.bytes = [float(row["params"]) * 4 * (1 + states) for row in layers]
        self.speed = {}
        skipped = self.cost.get("stages_skipped", [])
        for row in csv.DictReader(lines[points + 1 :]):
            d, p = int(row["pipelines"]), int(row["stages"])
            if self.cost["stages_min"] <= p <= self.cost["stages_max"] and p not in skipped:
                if d >= self.cost.get("pipelines_min", 1):
                    self.speed[d, p] = float(row["samples_per_s"])

    def best(self, nodes):
        """The fastest; of equals the largest, then the one with fewest stages."""
        fitting = [(speed, d * p, -p, (d, p)) for (d, p), speed in self.speed.items() if d * p <= nodes and speed > 0]
        return max(fitting)[3] if fitting else None

    def restart_ms(self, shape, adding):
        d, p = shape
        group = self.cost["group_add" if adding else "group_remove"]
        step = "pipelines_1_ms" if d < 6 else "pipelines_6_ms" if d < 12 else "pipelines_12_ms"
        ms = group.get("base_ms", 0) + d * group.get("per_pipeline_ms", 0) + p * group.get("per_stage_ms", 0)
        ms += d * p * group.get("per_instance_ms", 0) + group.get(step, 0)
        ms += self.cost["process_ms"] + self.cost["build_ms"].get(p, 0)
        return ms + (self.cost["rendezvous_ms"] + self.cost["rendezvous_extra_ms"] if adding else 0)

    def load_ms(self, p):
        each, extra = divmod(len(self.bytes) - 1, p)
        counts = [each + (i == 0) + (p - 2 - extra < i <= p - 2) for i in range(p)]
        ends = [sum(counts[: i + 1]) for i in range(p)]
        return sum(transfer_ms(sum(self.bytes[end - count : end])) for end, count in zip(ends, counts))


def read_trace(path):
    with open(path) as text:
        lines = text.read().split("\n")
    start = lines.index("")
    end = next(float(line.split(":")[1].strip().rstrip("s")) for line in lines[:start] if line.startswith("end:"))
    events = []
    for line in lines[start + 1 :]:
        if line and not line.startswith("#"):
            words = line.split()
            arrived = sum(int(word[1:]) for word in words[1:] if word[0] == "+")
            lost = sum(int(word[1:]) for word in words[1:] if word[0] == "-")
            events.append((float(words[0]), arrived, lost))
    return events, end


def replay(job, events, end, reactive):
    count, left, samples, hours, paused, idle = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i, (time, arrived, lost) in enumerate(events):
        until = events[i + 1][0] if i + 1 < len(events) else end
        count += arrived - lost
        shape, duration, pause = job.best(count), until - time, 0.0
        hours += count * duration / 3600
        if shape is None:
            idle += duration
            left = 0.0
            continue
        if reactive:
            pause = (job.restart_ms(shape, arrived > 0) + job.load_ms(shape[1])) / 1000
            pause += PAPER["rollback_ms"] / 1000 if i > 0 else 0
            pause += job.restart_ms(shape, arrived > 0) / 1000 if left > 0 else 0
            left = max(0.0, pause - duration)
        samples += job.speed[shape] * max(0.0, duration - pause)
        paused += min(pause, duration)
    return {"samples": samples, "bill": hours * SPOT_USD_H, "paused": paused, "idle": idle}


def check(model, path, bad):
    out = subprocess.run([tidemill, "simulate", "--model", model, path, "--policy", "ideal,reactive", "--json",
                          "--spot-price", str(SPOT_USD_H)], capture_output=True, check=True).stdout
    job, (events, end) = Job(model), read_trace(path)
    for run in json.loads(out)["runs"]:
        want = replay(job, events, end, run["policy"] == "reactive")
        stall = run["stall_s"]
        got = {"samples": run["samples"], "bill": run["bill_usd"], "idle": stall["idle"],
               "paused": stall["migrate"] + stall["rollback"] + stall["start"]}
        for key, value in want.items():
            if abs(got[key] - value) > 1e-9 * max(1, abs(value)):
                print(f"{model}, {path}, {run['policy']}: {key} {got[key]}, want {value}")
                bad += 1
    return bad


wrong = 0
models = [name for name in PAPER["models"] if name.startswith("parcae/")]
for name in ("hadp", "hasp", "ladp", "lasp"):
    for model in models:
        wrong = check(model, f"{root}/data/traces/{name}.tmtrace", wrong)
with tempfile.TemporaryDirectory() as place:
    for seed in range(6):
        made = os.path.join(place, f"made-{seed}.tmtrace")
        subprocess.run([tidemill, "trace", "generate", "--seed", str(seed), "--mean", str(10 + 3 * seed), "--nodes", "32",
                        "--mtbf", ("4m", "10m")[seed % 2], "--burst", "2.5", "--duration", "5h", "--interval",
                        ("1s", "60s", "7s")[seed % 3], "-o", made], check=True, capture_output=True)
        for model in models:
            wrong = check(model, made, wrong)
sys.exit(wrong > 0)

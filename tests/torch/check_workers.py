"""Several workers an instance (fleet: {workers: 2}), as several GPUs are used: shards of a model inside of an instance, replicas across; on
the local cloud with `tidemill run`, through kills of workers and of whole instances. Over gloo, on the CPU."""
import os
import re
import subprocess
import sys

import torch

from check_cluster import undisturbed
from cluster import ROOT, Trouble

STEPS = 150
JOB = f"""name: pairs
run: {sys.executable} {ROOT}/tests/torch/train_small.py gpt OUT --steps {STEPS} --shard fsdp
steps: {STEPS}
batch: 16
micro_batch: 2
seed: 3
determinism: bitwise
fleet: {{limit: 2, workers: 2, stages_min: 2, scaled: 0}}
"""


def test_workers_of_an_instance(build, folder):
    (folder / "job.yaml").write_text(JOB.replace("OUT", str(folder / "out")))
    variables = {**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run([build / "tidemill", "run", "-y", "--no-preemptions", "--state", folder / "run", "--chaos", "5", "--chaos-every", "8s",
                           "--chaos-faults", "2", "--chaos-kinds", "kill-worker,kill-agent", folder / "job.yaml"], env=variables,
                          capture_output=True, text=True, timeout=500)
    told = done.stdout + done.stderr + "".join(p.read_text(errors="replace") for p in (folder / "run").rglob("*.log"))
    if done.returncode:
        raise Trouble(f"status {done.returncode}\n{told[-4000:]}")
    found = [torch.load(path) for path in folder.glob("out-*")]
    alone = undisturbed(build, folder, "gpt", STEPS, "bitwise")
    assert found and all(one["hash"] == alone["hash"] for one in found), told[-4000:]
    seats = {}  # of a step of four workers: the instance and the place on it, by replica and shard
    for step, group, local, replica, shard in re.findall(r"applied (\d+) of 4 .* at (\d+)\.(\d+) seat (\d+)\.(\d+) ", told):
        seats.setdefault(int(step), {})[int(replica), int(shard)] = (int(group), int(local))
    whole = [s for s in seats.values() if len(s) == 4]
    assert whole, told[-4000:]
    assert all(sorted(s.values()) == [(0, 0), (0, 1), (1, 0), (1, 1)] for s in whole), whole
    assert any(s[0, 0][0] == s[0, 1][0] != s[1, 0][0] == s[1, 1][0] for s in whole), whole


test_workers_of_an_instance.slow = True

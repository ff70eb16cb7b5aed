"""Optimizer state in shards (ZeRO-1) on a real cluster: replicas and shards are lost and come back; the weights are those of one
undisturbed process that holds everything."""
import re

import torch
from torch import nn

import patterns
from check_cluster import SCRIPT, finish
from cluster import Cluster, Trouble, python
from tidemill.errors import UsageError
from tidemill.torch import checkpoint
from tidemill.torch.state import ModelState
from train_small import make, weights_hash


def start(build, folder, model, steps, determinism="bitwise"):
    words = [python(), SCRIPT, model, str(folder / "out"), "--steps", str(steps), "--determinism", determinism,
             "--gate", str(folder / "cluster" / "gate"), "--shard", "optimizer", "--save", str(folder / "saved")]
    return Cluster(build, folder / "cluster", words, steps, stages=2)


def states(cluster):
    """(replicas x shards, numbers of the optimizer's state) of every step of every worker."""
    return [(layout, int(n)) for path in cluster.folder.glob("worker-*.log")
            for n, layout in re.findall(r" state (\d+) layout (\S+)$", path.read_text(), re.M)]


def in_parts(cluster, whole, layout):
    """With two shards a worker never had the whole state."""
    found = [n for where, n in states(cluster) if where == layout]
    if not found or not all(0 < n < whole for n in found):
        raise Trouble(f"of {whole} numbers of state workers had {sorted(set(found))} in {layout}\n{cluster.tail()}")


def whole_state(model):
    module = make(model)
    kept = 2 if model != "mlp" else 1  # AdamW: two tensors and a count each; SGD: momentum
    return sum(p.numel() for p in module.parameters()) * kept + (len(list(module.parameters())) if kept == 2 else 0)


def saved_is_whole(folder, model, wanted):
    """Every worker has written its part: together they are a checkpoint that a job can begin from."""
    torch.manual_seed(99)
    module = make(model)
    optimizer = torch.optim.AdamW(module.parameters()) if model != "mlp" else torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    state = ModelState(module, optimizer, None, None)
    state.cut(4)
    checkpoint.load(state, folder / "saved")
    assert weights_hash(module) == wanted
    assert len(optimizer.state) == len(list(module.parameters()))


def test_shards_replicated(build, folder):
    """Two replicas of two shards: one worker is killed, its shard comes from the replica; another instance is lost."""
    steps = 60
    with start(build, folder, "gpt", steps) as c:
        for number in (1, 2, 3, 4):
            c.start_agent(number)
        c.await_(lambda: "2x2" in {layout for layout, _ in states(c)}, 240, "two replicas of two shards")
        c.kill_worker(2)
        c.await_step(c.newest()[0] + 3)
        c.await_step(c.newest()[0] + 2, 4)
        c.kill_instance(3)
        c.await_step(c.newest()[0] + 3)
        finish(c, build, folder, "gpt", steps)
        in_parts(c, whole_state("gpt"), "2x2")
        c.await_(lambda: (folder / "saved" / "tidemill.json").exists(), 30, "the checkpoint")
        saved_is_whole(folder, "gpt", torch.load(folder / "alone-0")["hash"])


def test_shards_from_copies(build, folder):
    """One replica of two shards, with BatchNorm: a worker goes for good, and what it alone held comes from the copies."""
    steps = 40
    with start(build, folder, "cnn", steps) as c:
        for number in (1, 2):
            c.start_agent(number)
        c.await_(lambda: "1x2" in {layout for layout, _ in states(c)}, 240, "two shards")
        c.await_(lambda: list((c.folder / "copies").glob("set-*/layer-3.*")) != [], 60, "a copy set")
        c.await_step(c.newest()[0] + 2)
        c.kill_instance(1)
        c.await_step(c.newest()[0] + 2, 1)
        c.start_agent(3)
        c.await_step(c.newest()[0] + 2, 2)
        finish(c, build, folder, "cnn", steps)
        in_parts(c, whole_state("cnn"), "1x2")


def test_shards_fast(build, folder):
    """Sums of floats, three workers, of which two have seats in shards."""
    steps = 40
    with start(build, folder, "gpt", steps, "fast") as c:
        for number in (1, 2, 3):
            c.start_agent(number)
        c.await_step(5)
        c.kill_worker(1)
        c.await_step(c.newest()[0] + 3)
        finish(c, build, folder, "gpt", steps, exact=False)


def test_shards_refuse(build, folder):
    """What needs the whole model when a step is applied."""
    def refused(words, *attached, **named):
        try:
            job, model = patterns.begin(), patterns.net()
            job.attach(model, patterns.sgd(model), *attached, **named)
            job.on_commit(lambda step, loss: None)
        except UsageError as error:
            assert words in str(error), error
            return
        raise Trouble(f"not refused: {named}")

    refused("shard='all'", shard="all")
    refused("state of the script's own", shard="optimizer", state={"more": nn.Linear(2, 2)})
    refused("job.on_commit", shard="optimizer")


for _test in (test_shards_replicated, test_shards_from_copies, test_shards_fast):  # check_full.py has the same in the quick tier
    _test.slow = True

"""Pipelines on a real cluster: stages are lost, layouts change, all replicas of a stage go."""
import copy
import os
import subprocess
from pathlib import Path

import torch

from cluster import ROOT, Cluster, Trouble, python

SCRIPT = str(ROOT / "tests" / "torch" / "train_pipeline.py")
LAYERS = 6


def undisturbed(folder: Path, steps: int, *extra: str):
    variables = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMILL_") or k == "TIDEMILL_LIBRARY"}
    subprocess.run([python(), SCRIPT, str(folder / "alone"), "--steps", str(steps), *extra], check=True,
                   stdout=subprocess.DEVNULL, env=variables)
    return torch.load(folder / "alone-0")


def begin(build: Path, folder: Path, steps: int, *extra: str) -> Cluster:
    words = [python(), SCRIPT, str(folder / "out"), "--steps", str(steps), "--gate", str(folder / "cluster" / "gate"), *extra]
    return Cluster(build, folder / "cluster", words, steps, layers=LAYERS, stages=2)


def finish(cluster: Cluster, folder: Path, steps: int, exact: bool, *extra: str) -> None:
    def layers():
        found = {}
        for path in folder.glob("out-*"):
            try:
                result = torch.load(path)
            except (EOFError, RuntimeError, OSError):  # it is being written
                continue
            for number, value in result["layers"].items():
                found.setdefault(number, set()).add(value)
        return found

    cluster.await_end()
    cluster.await_(lambda: len(layers()) == LAYERS, 30, "all layers' final weights")
    alone = undisturbed(folder, steps, *extra)
    if exact and layers() != {number: {value} for number, value in alone["layers"].items()}:
        raise Trouble(f"other weights than the undisturbed run: {layers()}\n{alone['layers']}\n{cluster.tail()}")
    for path in folder.glob("out-*"):
        result = torch.load(path)
        loss = result["loss"] if result["layers"] else None  # a spare has an older one
        assert loss is None or abs(loss - alone["loss"]) < (1e-9 if exact else 1e-2), (loss, alone["loss"])


def layouts(cluster: Cluster) -> str:
    return "".join(cluster.log(n) for n in (1, 2, 3, 4))


def test_pipeline_layouts_change(build, folder):
    """2x2; a worker is killed (1x2 and a spare), comes back; an instance is noticed."""
    steps = 60
    with begin(build, folder, steps, "--recompute") as c:
        for number in (1, 2, 3, 4):
            c.start_agent(number)
        c.await_(lambda: "layout 2x2" in layouts(c), 240, "2x2")
        c.kill_worker(2)
        c.await_step(c.newest()[0] + 3)
        c.await_step(c.newest()[0] + 2, 4)
        c.notice(3)
        c.await_step(c.newest()[0] + 3, 2)
        finish(c, folder, steps, True, "--recompute")


def test_pipeline_stage_lost(build, folder):
    """Both workers of a 1x2 layout hold half the model each; one goes for good: its layers come from the copies."""
    steps = 50
    with begin(build, folder, steps) as c:
        for number in (1, 2):
            c.start_agent(number)
        c.await_(lambda: "layout 1x2" in layouts(c), 240, "1x2")
        c.await_(lambda: list((c.folder / "copies").glob("set-*/layer-5.*")) != [], 60, "a copy set")
        c.await_step(c.newest()[0] + 2)
        c.kill_instance(1)
        c.await_step(c.newest()[0] + 2, 1)
        finish(c, folder, steps, True)


def test_pipeline_join_by_following(build, folder):
    """Two workers join two stages that train: each follows the layers that it will have."""
    steps = 50
    with begin(build, folder, steps) as c:
        c.start_agent(1)
        c.start_agent(2)
        c.await_(lambda: "layout 1x2" in layouts(c), 240, "1x2")
        c.await_step(c.newest()[0] + 2)
        c.start_agent(3)
        c.start_agent(4)
        c.await_(lambda: "layout 2x2" in layouts(c), 240, "2x2")
        finish(c, folder, steps, True)
        told = [int(line.split()[1]) for n in (3, 4) for line in c.log(n).splitlines() if line.startswith("followed ")]
        if not any(told):
            raise Trouble(f"nobody has followed: {told}\n{c.tail()}")


def batch_norm(build, folder, *extra):
    """BatchNorm in two stages, replicated: a worker is killed, comes back; one goes for good."""
    steps = 40
    with begin(build, folder, steps, "--model", "cnn", *extra) as c:
        for number in (1, 2, 3, 4):
            c.start_agent(number)
        c.await_(lambda: "layout 2x2" in layouts(c), 240, "2x2")
        c.kill_worker(2)
        c.await_step(c.newest()[0] + 3)
        c.kill_instance(3)
        c.await_step(c.newest()[0] + 3)
        finish(c, folder, steps, True, "--model", "cnn", *extra)


def test_pipeline_batch_norm(build, folder):
    batch_norm(build, folder)


def test_pipeline_batch_norm_recompute_compiled(build, folder):
    """What runs again in the backward pass leaves no trace in the statistics; layers are compiled."""
    batch_norm(build, folder, "--recompute", "--compile", "aot_eager")


def test_pipeline_batch_norm_as_plain(build, folder):
    """The statistics are those of a plain loop, whatever is computed again."""
    from tidemill import samples, torch as elastic
    from train_pipeline import Convolution
    from train_small import Points

    data = [Points("cnn", 16)[i] for i in range(16)]
    for more in ({}, {"recompute": True}, {"compile": {"backend": "eager"}}):
        torch.manual_seed(4)
        layers = [Convolution(True), Convolution(False), torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(512, 2))]
        for layer in layers[:2]:
            layer.inner[1].p = 0.0
        plain = torch.nn.Sequential(*copy.deepcopy(layers))
        job = elastic.init(steps=3, batch=8, micro_batch=4, seed=1)
        pipeline = elastic.Pipeline(job, layers, loss=torch.nn.functional.cross_entropy,
                                    optimizer=lambda layer: torch.optim.SGD(layer.parameters(), lr=0.1), **more)
        pipeline.train(data)
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
        for step in range(1, 4):
            optimizer.zero_grad()
            for number in range(2):
                rows = [data[i] for i in samples.micro_batch_items(1, len(data), 8, 4, step, number)]
                out = plain(torch.stack([r[0] for r in rows]))
                (torch.nn.functional.cross_entropy(out, torch.tensor([r[1] for r in rows])) / 2).backward()
            optimizer.step()
        for number in (0, 1):
            for name, tensor in plain[number].state_dict().items():
                torch.testing.assert_close(pipeline.layer(number).state_dict()[name], tensor, rtol=1e-4, atol=1e-5)


def test_pipeline_fast_bf16(build, folder):
    steps = 30
    with begin(build, folder, steps, "--determinism", "fast", "--bf16") as c:
        for number in (1, 2):
            c.start_agent(number)
        c.await_(lambda: "layout 1x2" in layouts(c), 240, "1x2")
        c.kill_worker(1)
        finish(c, folder, steps, False, "--determinism", "fast", "--bf16")


for _test in (test_pipeline_layouts_change, test_pipeline_join_by_following, test_pipeline_fast_bf16, test_pipeline_batch_norm,
              test_pipeline_batch_norm_recompute_compiled):
    _test.slow = True

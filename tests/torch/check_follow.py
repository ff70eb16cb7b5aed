"""Layers that move while they are trained: what a follower makes of a layer and a gradient is what the trainer's own step makes."""
import ctypes

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

import patterns
from cluster import ROOT, Cluster, Trouble, python
from tidemill.session import Alone
from tidemill.torch.job import Job
from train_small import Points, make

SCRIPT = str(ROOT / "tests" / "torch" / "train_small.py")


class Followed(Alone):
    """Every step is also done by a follower, from the state before and the gradients."""

    def __init__(self, engine, *words):
        super().__init__(engine, *words)
        self.engine, self.compared = engine, 0

    def _bytes(self, layer):
        room = ctypes.create_string_buffer(self.engine.layer_bytes(layer))
        self.engine.read_layer(layer, ctypes.addressof(room), len(room))
        return room

    def held(self, step, norms):
        out = super().held(step, norms)
        follow, self.made = self.engine.follow, []
        for layer in range(self._layers):
            state, gradient = self._bytes(layer), ctypes.create_string_buffer(follow.gradient_bytes(layer))
            follow.read_gradient(layer, ctypes.addressof(gradient), len(gradient))
            follow.advance(layer, step, self._norm, ctypes.addressof(state), ctypes.addressof(gradient))
            self.made.append(state.raw)
        return out

    def applied(self, step):
        super().applied(step)
        for layer, made in enumerate(self.made):
            now = self._bytes(layer).raw
            if now != made:
                at = next(i for i, (a, b) in enumerate(zip(now, made)) if a != b)
                raise Trouble(f"layer {layer} of step {step} is another from byte {at} of {len(now)} on")
            self.compared += 1


def through(script, determinism):
    """The script, with every step followed; how many layers were compared."""
    sessions, kept = [], Job._join

    def join(job, engine, digest, layers, device):
        assert engine.follow is not None
        job._session = Followed(engine, job.steps, layers, job.micro_batches)
        sessions.append(job._session)

    Job._join = join
    try:
        script(patterns.begin(determinism=determinism))
    finally:
        Job._join = kept
        torch.use_deterministic_algorithms(False)
    return sessions[0].compared


def scripts():
    def with_batch_norm(job):
        model = make("cnn")
        job.attach(model, torch.optim.AdamW(model.parameters(), 0.01, weight_decay=0.1), clip=0.5)
        for x, y in job.batches(Points("cnn", 40)):
            job.backward(F.cross_entropy(model(x), y))

    def tied_and_scheduled(job):
        model = make("gpt")
        groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in model.parameters() if p.dim() == 1]}]
        optimizer = torch.optim.AdamW(groups, 0.01, amsgrad=True)
        parts = [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4), lr_scheduler.CosineAnnealingLR(optimizer, 10)]
        job.attach(model, optimizer, lr_scheduler.SequentialLR(optimizer, parts, [4]), clip_value=0.05)
        for x, y in job.batches(Points("gpt", 40)):
            job.backward(F.cross_entropy(model(x), y.flatten()))

    def by_epochs(job):
        model = patterns.net(nn.Dropout(0.1))
        model[0].bias.requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
        job.attach(model, optimizer, lr_scheduler.StepLR(optimizer, 1, 0.7), schedule="epoch")
        patterns.loop(job, model, lambda n, x, y: job.backward(F.cross_entropy(model(x), y)))

    names = ("rate_by_step", "clip_in_the_loop", "rate_times_a_factor", "one_cycle", "tied_weights", "momentum_and_decay_by_step")
    return [with_batch_norm, tied_and_scheduled, by_epochs, *(patterns.PATTERNS[name][1] for name in names)]


def test_followers(build, folder):
    compare(scripts()[:2])


def test_followers_all(build, folder):
    compare(scripts()[2:])


def compare(some):
    for script in some:
        for determinism in ("bitwise", "fast"):
            if not through(script, determinism):
                raise Trouble(f"{script.__name__}: nothing was compared")


def test_followers_know_their_limits(build, folder):
    """State of the script's own, loss scales and functions of commits: such layers move during the change."""
    job, model = patterns.begin(), patterns.net()
    job.attach(model, patterns.sgd(model), state={"more": nn.Linear(2, 2)})
    assert job._state.follow is None
    job, model = patterns.begin(), patterns.net()
    job.attach(model, patterns.sgd(model), scaler=torch.amp.GradScaler("cpu"))
    assert job._state.follow is None
    job, model = patterns.begin(), patterns.net()
    job.attach(model, patterns.sgd(model))
    job.on_commit(lambda step, loss: None)
    room = ctypes.create_string_buffer(job._state.follow.gradient_bytes(0))
    try:
        job._state.follow.read_gradient(0, ctypes.addressof(room), len(room))
    except RuntimeError:
        return
    raise Trouble("a step with on_commit was taken for gradients alone")


def test_join_by_following(build, folder):
    """A third worker joins two that train: it has followed, nothing is fetched in the change, and the bits are those of one alone."""
    words = [python(), SCRIPT, "cnn", str(folder / "out"), "--gate", str(folder / "cluster" / "gate")]
    with Cluster(build, folder / "cluster", words, 40) as c:
        c.start_agent(1)
        c.start_agent(2)
        c.await_step(4, 2)
        c.start_agent(3)
        c.await_step(c.newest()[0] + 2, 3)
        c.await_end()
        c.await_(lambda: (folder / "out-3").exists(), 30, "the final weights")
        told = [line for line in c.log(3).splitlines() if line.startswith("followed ")]
        if not told or int(told[-1].split()[1]) == 0:
            raise Trouble(f"worker 3 has not followed: {told}\n{c.tail()}")
        results = {torch.load(path)["hash"] for path in folder.glob("out-*")}
    import subprocess
    alone = subprocess.run([python(), SCRIPT, "cnn", str(folder / "alone")], check=True, capture_output=True, env=c.variables)
    assert alone.returncode == 0
    assert results == {torch.load(folder / "alone-0")["hash"]}, results


for _test in (test_followers_all, test_join_by_following):
    _test.slow = True

"""Layers that move while they are trained: what a follower makes of a layer and a gradient is what the trainer's own step makes."""
import contextlib
import ctypes
import subprocess
from types import SimpleNamespace

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
            with self.as_one_without(follow):
                follow.advance(layer, step, self._norm, ctypes.addressof(state), ctypes.addressof(gradient))
            self.made.append(state.raw)
        return out

    @contextlib.contextmanager
    def as_one_without(self, follow):
        """Of a pipeline's layers: by a worker that does not have them."""
        owner = getattr(follow, "_owner", SimpleNamespace(_held=None))
        held, owner._held = owner._held, range(0)
        yield
        owner._held = held

    def applied(self, step):
        super().applied(step)
        for layer, made in enumerate(self.made):
            now = self._bytes(layer).raw
            if layer == self.engine.keeper:  # only the script knows
                continue
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

    def not_all_used(job):
        """Weight decay moves what has a gradient in the step, and nothing else."""
        model, other = patterns.net(), nn.Linear(6, 3)
        both = nn.ModuleList([model, other, nn.Linear(6, 3)])
        job.attach(both, torch.optim.AdamW(both.parameters(), 0.1, weight_decay=0.1), clip=0.5)

        def body(n, x, y):
            out = model(x) + other(x) if job.step().number % 3 == 0 else model(x)
            job.backward(F.cross_entropy(out, y))

        patterns.loop(job, both, body)

    def by_epochs(job):
        model = patterns.net(nn.Dropout(0.1))
        model[0].bias.requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
        job.attach(model, optimizer, lr_scheduler.StepLR(optimizer, 1, 0.7), schedule="epoch")
        patterns.loop(job, model, lambda n, x, y: job.backward(F.cross_entropy(model(x), y)))

    names = ("rate_by_step", "clip_in_the_loop", "rate_times_a_factor", "one_cycle", "tied_weights", "momentum_and_decay_by_step")
    return [with_batch_norm, tied_and_scheduled, not_all_used, by_epochs, *(patterns.PATTERNS[name][1] for name in names)]


def test_followers(build, folder):
    compare(scripts()[:3])


def test_followers_all(build, folder):
    compare(scripts()[3:])


def compare(some):
    for script in some:
        for determinism in ("bitwise", "fast"):
            if not through(script, determinism):
                raise Trouble(f"{script.__name__}: nothing was compared")


def test_followers_beside_state(build, folder):
    """With a loss scale that overflows, averages, counters, a schedule by what was measured: all but the layer of such state."""
    compare([patterns.PATTERNS[name][1] for name in ("float16_with_a_scaler", "averaged_model", "counters_and_the_best_loss")])


def test_followers_know_their_limits(build, folder):
    """What a function of commits does to weights is found by the hash; a step that is passed over is no gradient's."""
    try:
        compare([patterns.PATTERNS["clamped_on_commit"][1]])
    except Trouble as error:
        assert "is another from byte" in str(error)
    else:
        raise Trouble("weights that were clamped were followed")
    job, model = patterns.begin(), patterns.net()
    job.attach(model, patterns.sgd(model))
    job._stop.at = 3
    room = ctypes.create_string_buffer(job._state.follow.gradient_bytes(0))
    try:
        job._state.follow.read_gradient(0, ctypes.addressof(room), len(room))
    except RuntimeError:
        return
    raise Trouble("a step that is passed over was taken for gradients")


def test_pipeline_followers(build, folder):
    """Layers of a pipeline, with a tied weight, schedules, clipping, BatchNorm: as one who does not have them would make them."""
    from tidemill import torch as elastic
    from train_pipeline import layers_of

    for model, determinism in (("gpt", "bitwise"), ("gpt", "fast"), ("cnn", "bitwise")):
        sessions, kept = [], Job._join

        def join(job, engine, digest, layers, device):
            job._session = Followed(engine, job.steps, layers, job.micro_batches)
            sessions.append(job._session)

        Job._join = join
        try:
            job = elastic.init(steps=6, batch=8, micro_batch=2, seed=3, determinism=determinism)
            layers, tied = layers_of(model)
            pipeline = elastic.Pipeline(
                job, layers, loss=lambda out, y: F.cross_entropy(out.flatten(0, -2), y.flatten()), clip=0.5, tied=tied,
                optimizer=lambda layer: torch.optim.AdamW(layer.parameters(), 0.01),
                scheduler=lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 6))
            pipeline.train(Points(model, 40))
        finally:
            Job._join = kept
            torch.use_deterministic_algorithms(False)
        if sessions[0].compared != 36:
            raise Trouble(f"{model}: {sessions[0].compared} layers were compared")


def join_by_following(build, folder, model, *more):
    """A third worker joins two that train: it has followed, and the bits are those of one alone."""
    words = [python(), SCRIPT, model, str(folder / "out"), *more, "--gate", str(folder / "cluster" / "gate")]
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
    subprocess.run([python(), SCRIPT, model, str(folder / "alone"), *more], check=True, capture_output=True, env=c.variables)
    assert results == {torch.load(folder / "alone-0")["hash"]}, results


def test_join_by_following(build, folder):
    join_by_following(build, folder, "cnn")


def test_join_with_state_by_following(build, folder):
    """With an average of weights, which moves in the change, and a counter."""
    join_by_following(build, folder, "gpt", "--average")


for _test in (test_followers_all, test_join_by_following, test_join_with_state_by_following):
    _test.slow = True

"""Patterns that would train wrongly without a word: each is refused by its name, and what is right beside it is not."""
import copy
import math
import os
import sys
import warnings
import weakref

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import TensorDataset

import tidemill.torch
from check_parts import data, job, net, refused, train
from cluster import ROOT, Skipped
from tidemill.torch.job import Job

FOREIGN = ROOT.parent / "shared" / "foreign"
BOTH = ("fast", "bitwise")


def loop(body, steps=6, determinism="fast", model=None, optimizer=None, attach=None, **words):
    """A job whose loop calls body(job, model, optimizer, x, y) for every micro-batch."""
    j = job(steps=steps, determinism=determinism)
    model = model or net()
    optimizer = optimizer(model.parameters()) if optimizer else torch.optim.SGD(model.parameters(), 0.1)
    j.attach(model, optimizer, **(attach(optimizer) if attach else {}), **words)
    try:
        for x, y in j.batches(data()):
            body(j, model, optimizer, x, y)
    finally:
        torch.use_deterministic_algorithms(False)
    assert j.done()
    return j, model, optimizer


def good(j, model, optimizer, x, y):
    with j.step() as step:
        step.backward(F.cross_entropy(model(x), y))


class Wrapper(torch.optim.Optimizer):
    """As accelerate.optimizer.AcceleratedOptimizer: all that it has is another one's."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    param_groups = property(lambda self: self.optimizer.param_groups,
                            lambda self, v: setattr(self.optimizer, "param_groups", v))
    state = property(lambda self: self.optimizer.state, lambda self, v: setattr(self.optimizer, "state", v))

    def step(self, closure=None):
        return self.optimizer.step(closure)


class Lookahead(torch.optim.Optimizer):
    """A wrapper that shares the groups."""

    def __init__(self, base):
        self.base = base
        self.param_groups, self.state, self.defaults = base.param_groups, base.state, base.defaults

    def step(self, closure=None):
        self.base.step()


def test_wrapped_optimizers(build, folder):
    for wrap in (Wrapper, Lookahead):
        model = net()
        inner = torch.optim.AdamW(model.parameters(), 0.01)
        refused(lambda: job().attach(model, wrap(inner)), wrap.__name__, "AdamW", "plain torch.optim.Optimizer")
        assert len(inner.param_groups) == 1 and len(inner.param_groups[0]["params"]) == 4 and not inner.state
        j = job()
        j.attach(model, inner)  # the refusal has left it as it was
        before = [p.detach().clone() for p in model.parameters()]
        train(j, model, data())
        assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    model = net()
    replaced = torch.optim.SGD(model.parameters(), 0.1)
    replaced.step = lambda closure=None: None
    refused(lambda: job().attach(model, replaced), "SGD", "replaced")
    refused(lambda: job().attach(model, [torch.optim.SGD(model.parameters(), 0.1)]), "list", "parameter groups")


def test_accelerate_optimizer(build, folder):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    try:
        from accelerate import Accelerator
    except ImportError:
        raise Skipped("the package accelerate is not there (make venv)")
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    schedule = lr_scheduler.StepLR(optimizer, 2)
    prepared, prepared_optimizer, prepared_schedule = Accelerator(cpu=True).prepare(model, optimizer, schedule)
    j = job()
    j.attach(prepared, prepared_optimizer, prepared_schedule)
    before = copy.deepcopy(model.state_dict())
    for x, y in j.batches(data()):
        j.backward(F.cross_entropy(prepared(x), y))
        prepared_optimizer.step()
        prepared_schedule.step()
        prepared_optimizer.zero_grad()
    assert j.done() and abs(optimizer.param_groups[0]["lr"] - 1e-5) < 1e-12
    assert not any(torch.equal(before[k], v) for k, v in model.state_dict().items())
    other = lr_scheduler.StepLR(torch.optim.SGD(net().parameters(), 0.1), 2)
    refused(lambda: job().attach(model, torch.optim.SGD(model.parameters(), 0.1), other), "StepLR", "another optimizer")


def test_probing_changes_nothing(build, folder):
    """The trial step shares no list, no map and no tensor with the script's optimizer."""
    class Keeps(torch.optim.SGD):
        def __init__(self, params, lr):
            super().__init__(params, lr)
            self.calls, self.all = [], [p for g in self.param_groups for p in g["params"]]

        def step(self, closure=None):
            self.calls.append(1)
            self.param_groups[0]["count"] = self.param_groups[0].get("count", 0) + 1
            for p in self.all:
                p.data.add_(1.0)
            return super().step()

    model = net()
    optimizer = Keeps(model.parameters(), torch.tensor(0.1))
    before = copy.deepcopy(model.state_dict())
    groups = [dict(g) for g in optimizer.param_groups]
    job().attach(model, optimizer)
    assert optimizer.calls == [] and optimizer.param_groups == groups and not optimizer.state
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


class Live(TorchDispatchMode):
    """The most elements that tensors made inside of it have had at a time."""

    def __init__(self):
        super().__init__()
        self.now = self.most = 0
        self.known = set()

    def gone(self, key, count):
        self.known.discard(key)
        self.now -= count

    def __torch_dispatch__(self, function, types, words=(), named=None):
        out = function(*words, **(named or {}))
        for one in out if isinstance(out, (list, tuple)) else (out,):
            if isinstance(one, torch.Tensor) and one.device.type != "meta":
                storage = one.untyped_storage()
                if storage._cdata not in self.known:
                    self.known.add(storage._cdata)
                    self.now += storage.nbytes() // 4
                    self.most = max(self.most, self.now)
                    weakref.finalize(storage, self.gone, storage._cdata, storage.nbytes() // 4)
        return out


class EveryGradient(torch.optim.SGD):
    """Steps all of its parameters, with a gradient or without."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["seen"] = p.grad.abs()


def test_probing_in_parts(build, folder):
    """The optimizer's state is learnt from a few parameters at a time, and is what a step of all of them shows."""
    from tidemill.torch import state

    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(12)], nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last))
    kinds = [lambda p: torch.optim.AdamW(p, 0.1, amsgrad=True), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), torch.optim.Adafactor,
             torch.optim.Rprop, torch.optim.ASGD, torch.optim.NAdam, torch.optim.Adagrad, EveryGradient,
             lambda p: torch.optim.Adam(p, torch.tensor(0.1), foreach=False)]
    for make in kinds:
        optimizer = make(model.parameters())
        parts = state.probe_optimizer(optimizer)
        whole = state._try_part(optimizer, list(model.parameters()), {})
        assert list(parts) == list(whole) == list(model.parameters())
        for param, told in whole.items():
            assert list(told) == list(parts[param]), type(optimizer)
            for key, value in told.items():
                other = parts[param][key]
                if not isinstance(value, torch.Tensor):
                    assert value == other
                    continue
                assert (value.shape, value.stride(), value.dtype, value.of_device) == (
                    other.shape, other.stride(), other.dtype, other.of_device), (type(optimizer), key)
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    with Live() as live:
        state.probe_optimizer(optimizer)
    assert live.most < 8 * 64 * 65, (live.most, sum(p.numel() for p in model.parameters()))  # weight, gradient, two of state, and what a step takes
    with Live() as all_at_once:
        state._try_part(optimizer, list(model.parameters()), {})
    assert all_at_once.most > 4 * live.most, (all_at_once.most, live.most)


def test_divided_losses(build, folder):
    """A loss that was divided by a number of micro-batches: a warning, and none for what only looks like it."""
    def cross(model, x, y):
        return F.cross_entropy(model(x), y)

    def summed(model, x, y):
        return F.cross_entropy(model(x), y, reduction="sum")

    rows = [(lambda *w: cross(*w) / 4, 4), (lambda *w: cross(*w) * 0.25, 4), (lambda *w: cross(*w) / 4 + 0.0, 4),
            (lambda *w: cross(*w) / 4 + cross(*w) / 4, 4), (lambda *w: cross(*w) / 8, 8), (lambda *w: summed(*w) / 4, 4),
            (lambda *w: cross(*w) / torch.tensor(4.0), 4),
            (cross, None), (lambda *w: cross(*w) / 2, None), (lambda *w: 0.1 * cross(*w), None), (lambda *w: summed(*w) / 8, None),
            (lambda *w: cross(*w) + cross(*w) / 4, None), (lambda *w: cross(*w) / 4 + cross(*w) / 8, None)]
    for number, (loss, by) in enumerate(rows):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            loop(lambda j, model, optimizer, x, y: j.backward(loss(model, x, y)), steps=2)
        found = [w for w in told if "was divided by" in str(w.message)]
        assert len(found) == (by is not None), (number, [str(w.message) for w in told])
        if found:
            assert f"divided by {by}," in str(found[0].message) and f"scale={by})" in str(found[0].message), found[0].message
            assert found[0].filename == __file__, found[0].filename


def test_small_weights_of_losses(build, folder):
    """A weight of the loss that grows by a counter, as slowly as annealing does."""
    def annealed(part):
        count = [0]

        def body(j, model, optimizer, x, y):
            count[0] += 1
            out = model(x)
            j.backward(F.cross_entropy(out, y) + count[0] * part * out.square().mean())

        return body

    threads = torch.get_num_threads()
    try:
        for number, part in ((1, 1e-6), (2, 1e-5)):
            torch.set_num_threads(number)
            refused(lambda: loop(annealed(part)), "was computed twice", "job.committed_step")
            loop(good)
            loop(lambda j, m, o, x, y: good(j, m, o, x.repeat(99, 1), y.repeat(99)), model=nn.Sequential(nn.Linear(6, 999), nn.GELU(), nn.Linear(999, 3)))
    finally:
        torch.set_num_threads(threads)


def test_summed_losses(build, folder):
    """A loss that is a sum over samples: a warning, and none for what only looks like one."""
    def each(model, x, y, reduction="none"):
        return F.cross_entropy(model(x), y, reduction=reduction)

    def kl(model, x):
        return -0.5 * torch.sum(1 + model(x) - model(x).exp())

    def of_examples(model, x, y):
        """The VAE of pytorch/examples."""
        return F.binary_cross_entropy(model(x).sigmoid(), torch.ones(2, 3), reduction="sum") + kl(model, x)

    rows = [(lambda *w: each(*w, "sum"), True), (lambda *w: each(*w).sum(), True), (of_examples, True),
            (lambda m, x, y: (m(x) - 1).pow(2).sum(), True), (lambda m, x, y: F.mse_loss(m(x), torch.ones(2, 3), reduction="sum"), True),
            (lambda m, x, y: -F.log_softmax(m(x), 1).sum(), True), (lambda m, x, y: each(m, x, y, "sum") + 0.1 * kl(m, x), True),
            (lambda *w: each(*w, "mean"), False), (lambda *w: each(*w).mean(), False), (lambda *w: each(*w).sum() / 2, False),
            (lambda *w: each(*w).sum() / len(w[2]), False), (lambda *w: each(*w, "mean").sum(), False),
            (lambda *w: torch.stack([each(*w, "mean"), each(*w, "mean")]).sum(), False), (lambda *w: 0.01 * each(*w, "sum"), False),
            (lambda *w: (each(*w) * torch.tensor([0.3, 0.7])).sum(), False), (lambda m, x, y: each(m, x, y, "mean") + kl(m, x), False),
            (lambda m, x, y: each(m, x, y, "mean") + 1e-4 * sum(p.pow(2).sum() for p in m.parameters()), False),
            (lambda m, x, y: m(x).pow(2).sum(1).mean(), False)]
    for number, (loss, told_of) in enumerate(rows):
        for scale in (1.0, 4.0):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                loop(lambda j, model, optimizer, x, y: j.backward(loss(model, x, y), scale=scale), steps=2,
                     optimizer=lambda p: torch.optim.SGD(p, 1e-3))
            found = [w for w in told if "the loss is a sum over samples" in str(w.message)]
            assert len(found) == (told_of and scale == 1.0), (number, scale, [str(w.message) for w in told])
            assert all("scale=job.micro_batches" in str(w.message) and w.filename == __file__ for w in found)


def test_schedules_of_micro_batches(build, folder):
    """A schedule that is as long as the job has micro-batches (epochs * len(loader)): a warning, and none for other lengths."""
    from functools import partial

    def decay(step, num_training_steps):
        return 1.0 - step / num_training_steps

    def warmed(o, length):
        return lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o, 0.1, total_iters=4), lr_scheduler.CosineAnnealingLR(o, length - 4)], [4])

    rows = [lr_scheduler.CosineAnnealingLR, lambda o, length: lr_scheduler.OneCycleLR(o, 0.1, total_steps=length), warmed,
            lambda o, length: lr_scheduler.LinearLR(o, 1.0, 0.0, total_iters=length),
            lambda o, length: lr_scheduler.LambdaLR(o, partial(decay, num_training_steps=length)),
            lambda o, length: lr_scheduler.ChainedScheduler([lr_scheduler.CosineAnnealingLR(o, length)])]
    for number, make in enumerate(rows):
        for length, schedule, told_of in ((200, "step", True), (203, "step", True), (50, "step", False), (51, "step", False),
                                          (100, "step", False), (200, "epoch", False)):
            model = net()
            optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
            j = job(steps=50)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                j.attach(model, optimizer, make(optimizer, length), schedule=schedule)
            found = [w for w in told if "as long as the job has micro-batches (200 = 50 steps of 4)" in str(w.message)]
            assert len(found) == told_of, (number, length, schedule, [str(w.message) for w in told])
            assert all(w.filename == __file__ for w in found), found[0].filename


def test_optimizer_that_does_nothing(build, folder):
    class Idle(torch.optim.SGD):
        def step(self, closure=None):
            return None

    for determinism in BOTH:
        refused(lambda: loop(good, determinism=determinism, optimizer=lambda p: Idle(p, 0.1)), "Idle", "no parameter",
                "learning rate")
    warm = lambda o: {"scheduler": lr_scheduler.LambdaLR(o, lambda s: min(1.0, s / 3))}  # noqa: E731
    loop(good, attach=warm)  # a rate of 0 moves nothing, and is right
    loop(good, optimizer=lambda p: torch.optim.SGD(p, 1e-30))  # nor does one that rounding loses


def test_tensors_that_are_not_here(build, folder):
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import FullyShardedDataParallel

    with torch.device("meta"):
        model = net()
    for shard in (None, "full"):
        refused(lambda: job().attach(model, torch.optim.SGD(model.parameters(), 0.1), shard=shard), "0.weight", "meta device", "to_empty")

    class Marked(nn.Parameter):
        pass

    marked = net()
    marked[0].weight = Marked(marked[0].weight.detach())  # a name of its own, and an ordinary tensor
    loop(good, model=marked)
    lazy = nn.Sequential(nn.LazyLinear(3))
    refused(lambda: job().attach(lazy, torch.optim.SGD(lazy.parameters(), 0.1)), "0.weight", "lazy")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        bare = nn.Sequential(nn.Linear(4, 4))
        bare[0].weight = nn.Parameter(torch.distributed.tensor.distribute_tensor(torch.ones(4, 4), DeviceMesh("cpu", [0])))
        refused(lambda: job().attach(bare, torch.optim.SGD(bare.parameters(), 0.1)), "0.weight", "DTensor")
        for wrap in (nn.parallel.DistributedDataParallel, nn.DataParallel):
            wrapped = wrap(net())
            refused(lambda: job().attach(wrapped, torch.optim.SGD(wrapped.parameters(), 0.1)), wrap.__name__, "plain model")
        model = net()
        around = nn.parallel.DistributedDataParallel(model)
        refused(lambda: loop(lambda j, m, o, x, y: good(j, around, o, x, y), model=model), "DistributedDataParallel",
                "plain model")
        old = FullyShardedDataParallel(net(), device_id=torch.device("cpu"))
        refused(lambda: job().attach(old, torch.optim.SGD(old.parameters(), 0.1)), "FullyShardedDataParallel")
    finally:
        dist.destroy_process_group()


SCHEDULES = {
    "none": None,
    "step": lambda o: lr_scheduler.StepLR(o, 2),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=7, cycle_momentum=True),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    "warm restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2),
    "sequential": lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [2]),
    "chained": lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)]),
}


def test_settings_of_groups(build, folder):
    """Settings change by the attached schedule and by nothing else."""
    for name, make in SCHEDULES.items():
        for rate in (0.1, torch.tensor(0.1)):
            if name == "one cycle" and isinstance(rate, torch.Tensor):
                continue
            attach = None if make is None else lambda o: {"scheduler": make(o)}
            loop(good, attach=attach, optimizer=lambda p: torch.optim.SGD(p, rate, momentum=0.9))

    counter = [0]

    def by_counter(j, model, optimizer, x, y):
        counter[0] += 1
        for group in optimizer.param_groups:
            group["lr"] = 0.1 / counter[0]
        good(j, model, optimizer, x, y)

    for determinism in BOTH:
        refused(lambda: loop(by_counter, determinism=determinism), "'lr'", "group 0", "LambdaLR", "job.committed_step")

    def by_step(j, model, optimizer, x, y):
        optimizer.param_groups[0].update(lr=0.1 / (1 + j.committed_step), weight_decay=0.5, mine=1)
        good(j, model, optimizer, x, y)

    assert loop(by_step)[2].param_groups[0]["lr"] == 0.1 / 6

    def late(j, model, optimizer, x, y):
        good(j, model, optimizer, x, y)
        optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.01

    refused(lambda: loop(late), "'lr'", "from 0.1 to 0.01", "after optimizer.step()", "step.number")

    def after(j, model, optimizer, x, y):
        if not j._callbacks:
            j.after_step(lambda step, loss: optimizer.param_groups[0].update(lr=0.01))
        good(j, model, optimizer, x, y)

    refused(lambda: loop(after), "'lr'", "between two steps", "job.on_commit")
    refused(lambda: loop(by_step, attach=lambda o: {"scheduler": lr_scheduler.StepLR(o, 2)}), "parameter group 0",
            "a schedule is attached")

    def in_place(j, model, optimizer, x, y):
        good(j, model, optimizer, x, y)
        optimizer.param_groups[0]["lr"].fill_(0.3)

    refused(lambda: loop(in_place, optimizer=lambda p: torch.optim.SGD(p, torch.tensor(0.1))), "'lr'")
    made = []

    def own_schedule(j, model, optimizer, x, y):
        if not made:
            made.append(lr_scheduler.StepLR(optimizer, 1))
        good(j, model, optimizer, x, y)
        made[0].step()

    refused(lambda: loop(own_schedule), "parameter group 0", "attach a schedule")
    loop(good, attach=lambda o: {"scheduler": SWALR(o, swa_lr=0.05, anneal_epochs=3)})
    refused(lambda: loop(lambda j, m, o, x, y: (good(j, m, o, x, y), o.step(), SWALR(o, swa_lr=0.05))), "group 0",
            "after optimizer.step()")

    def of_an_epoch(j, model, optimizer, x, y):
        good(j, model, optimizer, x, y)
        schedule[0].step(0.5)

    schedule = []

    def restarts(optimizer):
        schedule.append(lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2))
        return {"scheduler": schedule[0]}

    refused(lambda: loop(of_an_epoch, attach=restarts), "CosineAnnealingWarmRestarts.step(0.5)", "steps")

    def more(j, model, optimizer, x, y):
        good(j, model, optimizer, x, y)
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})

    refused(lambda: loop(more), "add_param_group")
    refused(lambda: loop(lambda j, m, o, x, y: (good(j, m, o, x, y), o.load_state_dict(o.state_dict()))), "load_state_dict")


def test_settings_in_a_pipeline(build, folder):
    made = []

    def optimizer(layer):
        made.append(torch.optim.SGD(layer.parameters(), 0.1))
        return made[-1]

    j = job()
    pipeline = tidemill.torch.Pipeline(j, [nn.Linear(6, 6), nn.Linear(6, 3)], loss=F.cross_entropy, optimizer=optimizer)
    j.after_step(lambda step, loss: made[1].param_groups[0].update(lr=0.2))
    refused(lambda: pipeline.train(data()), "'lr'", "from 0.1 to 0.2")


def test_weights_changed_by_hand(build, folder):
    """Only the optimizer changes parameters, and nobody buffers, in the loop and around it."""
    def clamp(j, model, optimizer, x, y):
        good(j, model, optimizer, x, y)
        with torch.no_grad():
            model[0].weight.clamp_(-0.1, 0.1)

    for determinism in BOTH:
        refused(lambda: loop(clamp, determinism=determinism), "the parameter 0.weight", "optimizer")

    class Renormed(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.out = nn.Embedding(3, 5, max_norm=0.1), nn.Linear(5, 3)

        def forward(self, x):
            return self.out(self.rows((x[:, 0] > 0).long()))

    refused(lambda: loop(good, model=Renormed()), "rows.weight", "max_norm")

    model = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))
    loop(good, model=model, optimizer=lambda p: torch.optim.SGD(p, 0.1))

    def outside(j, model, optimizer, x, y):
        step = j.step()
        good(j, model, optimizer, x, y)
        if step.micro_batch == 3:
            model(x)  # in training mode: it changes the running statistics

    refused(lambda: loop(outside, model=model), "the buffer 1.num_batches_tracked", "outside")

    def looks(j, model, optimizer, x, y):
        good(j, model, optimizer, x, y)
        model.eval()
        model(x)
        model.train()

    loop(looks, model=model)

    def thaw(j, model, optimizer, x, y):
        good(j, model, optimizer, x, y)
        model[0].weight.requires_grad_(True)

    frozen = net()
    frozen[0].weight.requires_grad_(False)
    refused(lambda: loop(thaw, model=frozen), "requires_grad", "0.weight")

    j, model = job(), net()
    j.attach(model, torch.optim.SGD(model.parameters(), 0.1))
    model.load_state_dict(net().state_dict())
    refused(lambda: train(j, model, data()), "0.weight", "before attach")


def test_gradients_replaced(build, folder):
    """Gradients that the loop puts in place of the sums are refused; the model's own zero_grad takes nothing away."""
    def replaced(j, model, optimizer, x, y):
        j.backward(F.cross_entropy(model(x), y))
        for p in model.parameters():
            p.grad = p.grad * 1.0

    def cleared(j, model, optimizer, x, y):
        model.zero_grad()
        j.backward(F.cross_entropy(model(x), y))
        model.zero_grad()

    for determinism in BOTH:
        refused(lambda: loop(replaced, determinism=determinism), "gradients were changed", "register_hook")
        got, expected = loop(cleared, determinism=determinism)[1], loop(good, determinism=determinism)[1]
        assert all(torch.equal(a, b) for a, b in zip(got.parameters(), expected.parameters())), determinism


def test_gradients_left_out(build, folder):
    """None for some of the parameters (DINO's cancel_gradients_last_layer) leaves nothing out of the sum; for all it is zero_grad."""
    def drop(which, late=False):
        def body(j, model, optimizer, x, y):
            model[0].zero_grad()  # before: it means nothing
            j.backward(F.cross_entropy(model(x), y))
            if late:
                optimizer.step()
            for p in which(model):
                p.grad = None
            optimizer.step()

        return body

    def head(model):
        return model[2].parameters()

    class Twin(nn.Module):
        """A part of it has no gradient."""

        def __init__(self):
            super().__init__()
            self.used, self.unused = net(), nn.Linear(6, 3)

        def forward(self, x):
            return self.used(x)

    def twin(j, model, optimizer, x, y):
        model.zero_grad()
        j.backward(F.cross_entropy(model(x), y))
        model.used.zero_grad()  # all that there is

    for determinism in BOTH:
        refused(lambda: loop(drop(head), determinism=determinism), "the gradient of 2.weight was set to None", "job.committed_step")
        expected = loop(good, determinism=determinism)[1]
        for which, late in ((lambda model: model.parameters(), False), (head, True)):
            got = loop(drop(which, late), determinism=determinism)[1]
            assert all(torch.equal(a, b) for a, b in zip(got.parameters(), expected.parameters())), determinism
        loop(twin, model=Twin(), determinism=determinism)

    def without_step(j, model, optimizer, x, y):
        j.backward(F.cross_entropy(model(x), y))
        model[2].weight.grad = None

    refused(lambda: loop(without_step), "2.weight", "zero_grad of the whole model")


def test_two_jobs_of_one_model(build, folder):
    """What the first job has put on the model does nothing in the second."""
    for determinism in BOTH:
        used = loop(good, determinism=determinism)[1]
        fresh = copy.deepcopy(used)
        for model in (used, fresh):
            loop(good, determinism=determinism, model=model)
        assert all(torch.equal(a, b) for a, b in zip(used.parameters(), fresh.parameters())), determinism


def test_backward_of_torch(build, folder):
    """loss.backward() that was left in the loop, in place of step.backward or beside it."""
    def kept(j, model, optimizer, x, y):
        with j.step():
            F.cross_entropy(model(x), y).backward()

    def also(j, model, optimizer, x, y):
        with j.step() as step:
            loss = F.cross_entropy(model(x), y)
            step.backward(loss)
            F.cross_entropy(model(x), y).backward()

    def before(j, model, optimizer, x, y):
        F.cross_entropy(model(x), y).backward()
        good(j, model, optimizer, x, y)

    def twice(j, model, optimizer, x, y):
        with j.step() as step:
            step.backward(F.cross_entropy(model(x), y))
            step.backward(model(x).square().mean())

    def none(j, model, optimizer, x, y):
        with j.step():
            model(x)

    def again(j, model, optimizer, x, y):
        good(j, model, optimizer, x, y)
        good(j, model, optimizer, x, y)

    def late(j, model, optimizer, x, y):
        good(j, model, optimizer, x, y)
        j.backward(F.cross_entropy(model(x), y))

    def clip(j, model, optimizer, x, y):
        with j.step() as step:
            step.backward(F.cross_entropy(model(x), y))
            nn.utils.clip_grad_norm_(model[0].parameters(), 1.0)

    def clip_after(j, model, optimizer, x, y):
        good(j, model, optimizer, x, y)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=1.0)

    def value(j, model, optimizer, x, y):
        with j.step() as step:
            step.backward(F.cross_entropy(model(x), y))
            nn.utils.clip_grad_value_(model.parameters(), 1e-3)

    def closure(j, model, optimizer, x, y):
        good(j, model, optimizer, x, y)
        optimizer.step(lambda: None)

    rows = [(kept, ["check_guards.py:", "F.cross_entropy(model(x), y).backward()`", "write job.backward(loss)"]),
            (also, ["check_guards.py:", "outside of job.backward"]), (closure, ["step(closure)"]),
            (twice, ["twice", "add the losses"]), (none, ["without step.backward(loss)"]), (again, ["has had its step"]),
            (late, ["twice"]), (clip, ["clip_grad_norm_", "all parameters"]),
            (clip_after, ["clip_grad_norm_", "2-norm"]), (value, ["outside of job.backward", "clip=MAX_NORM"])]
    for body, words in rows:
        for determinism in BOTH:
            refused(lambda: loop(body, determinism=determinism), *words)
    refused(lambda: loop(before), "loss.backward()")

    def tidy(j, model, optimizer, x, y):
        with j.step() as step:
            model.zero_grad()
            step.backward(F.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
        model.zero_grad()

    def without_with(j, model, optimizer, x, y):
        j.backward(F.cross_entropy(model(x), y))

    ends = [loop(body, determinism=d)[1].state_dict() for d in BOTH for body in (good, tidy)]
    bare = loop(without_with)[1].state_dict()
    assert all(torch.equal(ends[0][k], bare[k]) for k in bare)
    assert all(torch.equal(ends[0][k], ends[1][k]) and torch.equal(ends[2][k], ends[3][k]) for k in ends[0])
    model = net()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # outside of a loop it is torch's


def test_state_beside_the_model(build, folder):
    """Averages of weights, other optimizers, hooks and scalers."""
    averages = []

    def swa(j, model, optimizer, x, y):
        if not averages:
            averages.append(AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)))
        good(j, model, optimizer, x, y)
        averages[0].update_parameters(model)

    refused(lambda: loop(swa), "AveragedModel", "state={")
    averages[0].update_parameters(net())  # outside of a loop it is torch's

    def attached(place):
        ema = AveragedModel(net(), multi_avg_fn=get_ema_multi_avg_fn(0.9))

        def body(j, model, optimizer, x, y):
            if place == "loop":
                ema.update_parameters(model)
            elif not (j._callbacks or j._commit_callbacks):
                getattr(j, place)(lambda step, loss: ema.update_parameters(model))
            good(j, model, optimizer, x, y)

        loop(body, state={"ema": ema})
        return int(ema.n_averaged)

    assert attached("loop") == attached("on_commit") == 6
    refused(lambda: attached("after_step"), "update_parameters", "between two steps", "job.on_commit", "in the loop")

    def shadow(make, blend):
        kept = []

        def body(j, model, optimizer, x, y):
            if not kept:
                kept.append(make(model))
            good(j, model, optimizer, x, y)
            with torch.no_grad():
                blend(kept[0], model)

        return body

    def of_module(copied, model):
        for a, b in zip(copied.parameters(), model.parameters()):
            a.data.mul_(0.999).add_(b.data, alpha=0.001)

    def of_dict(copied, model):
        for name, p in model.named_parameters():
            copied[name] = 0.9 * copied[name] + 0.1 * p

    def of_list(copied, model):
        for a, b in zip(copied, model.parameters()):
            a.lerp_(b, 0.1)

    def nothing(copied, model):
        pass

    makers = [(copy.deepcopy, of_module, "a Sequential beside"),
              (lambda m: {n: p.detach().clone() for n, p in m.named_parameters()}, of_dict, "a dict of 4 tensors"),
              (lambda m: [p.detach().clone() for p in m.parameters()], of_list, "a list of 4 tensors")]
    for make, blend, name in makers:
        for determinism in BOTH:
            refused(lambda: loop(shadow(make, blend), determinism=determinism), name, "changes while the job trains")
            loop(shadow(make, nothing), determinism=determinism)  # a frozen teacher is right
    loop(shadow(lambda m: m.state_dict(), nothing))  # the model's own tensors
    loop(shadow(lambda m: [torch.full_like(p, math.nan) for p in m.parameters()], nothing))  # NaN is not unlike itself

    other = nn.Linear(6, 3)
    second = torch.optim.SGD(other.parameters(), 0.1)

    def two(j, model, optimizer, x, y):
        good(j, model, optimizer, x, y)
        other(x).sum().backward()
        second.step()

    refused(lambda: loop(two), "another optimizer (SGD)", "parameter groups")
    second.step()

    def hooked(optimizer):
        optimizer.register_step_post_hook(lambda *_: None)
        return {}

    refused(lambda: loop(good, attach=hooked), "register_step_post_hook", "after_step")
    refused(lambda: loop(lambda j, m, o, x, y: (good(j, m, o, x, y), hooked(o))), "register_step_post_hook")

    def scaled(enabled):
        scaler = torch.amp.GradScaler("cpu", enabled=enabled)

        def body(j, model, optimizer, x, y):
            with j.step() as step:
                step.backward(scaler.scale(F.cross_entropy(model(x), y)))
                scaler.step(optimizer)
                scaler.update()

        return body

    refused(lambda: loop(scaled(True)), "GradScaler", "scaler=scaler")
    loop(scaled(False))


def test_loops_of_others(build, folder):
    """nanoGPT's and the MNIST example's own lines: what they set by a counter is refused, and the port that the error names
    trains (data of other people beside the checkout)."""
    if not (FOREIGN / "nanoGPT" / "model.py").exists():
        raise Skipped("../shared/foreign is not there")
    sys.path.insert(0, str(FOREIGN / "nanoGPT"))
    from model import GPT, GPTConfig

    lines = (FOREIGN / "nanoGPT" / "train.py").read_text()
    get_lr = lines[lines.index("def get_lr(it):"):lines.index("# logging\n")]
    assert "for param_group in optimizer.param_groups:\n        param_group['lr'] = lr" in lines
    figures = {"math": math, "learning_rate": 1e-2, "warmup_iters": 2, "lr_decay_iters": 6, "min_lr": 1e-3}
    exec(get_lr, figures)
    text = torch.randint(0, 16, (40, 9), generator=torch.Generator().manual_seed(1))
    pairs = TensorDataset(text[:, :-1], text[:, 1:])

    def gpt(body, schedule=None):
        j = job()
        model = GPT(GPTConfig(block_size=8, vocab_size=16, n_layer=1, n_head=2, n_embd=8, dropout=0.1, bias=False))
        optimizer = model.configure_optimizers(0.1, 1e-2, (0.9, 0.95), "cpu")
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        j.attach(model, optimizer, schedule and schedule(optimizer), clip=1.0)
        for number, (X, Y) in enumerate(j.batches(pairs)):
            with j.step() as step:
                body(number, optimizer, model)
                step.backward(scaler.scale(model(X, Y)[1]))
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
        assert j.done()

    def by_counter(number, optimizer, model):
        for param_group in optimizer.param_groups:
            param_group["lr"] = figures["get_lr"](number)

    refused(lambda: gpt(by_counter), "'lr'", "LambdaLR")
    gpt(lambda *_: None, lambda o: lr_scheduler.LambdaLR(o, lambda step: figures["get_lr"](step) / 1e-2))

    source = (FOREIGN / "mnist" / "main.py").read_text()
    names = {"nn": nn, "F": F, "torch": torch}
    exec(source[source.index("class Net"):source.index("def train(")], names)
    images = TensorDataset(torch.randn(16, 1, 28, 28), torch.randint(0, 10, (16,)))

    def mnist(step_in_loop):
        j = job()
        model = names["Net"]()
        optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
        scheduler = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
        j.attach(model, optimizer, None if step_in_loop else scheduler)
        for data, target in j.batches(images):
            optimizer.zero_grad()
            with j.step() as step:
                step.backward(F.nll_loss(model(data), target))
                optimizer.step()
            scheduler.step()
        assert j.done()

    mnist(False)
    refused(lambda: mnist(True), "'lr'", "after optimizer.step()")


def test_who_is_main(build, folder):
    """Alone it is known at once; one of many learns its place with the first step."""
    j = job()
    assert j.is_main and j.rank == 0 and j.world_size == 1
    seen = []
    model = net()
    j.attach(model, torch.optim.SGD(model.parameters(), 0.1))
    j.after_step(lambda step, loss: seen.append(j.is_main))
    train(j, model, data())
    assert j.done() and j.is_main and seen == [True] * 6

    one = Job("127.0.0.1", 1, 1, 1, 1, "fast", 1, None, "gloo", 1.0)
    try:
        for name in ("rank", "world_size", "is_main"):
            refused(lambda: getattr(one, name), f"job.{name}", "before job.attach", "job.on_main")
        assert "RANK" not in os.environ and "WORLD_SIZE" not in os.environ
    finally:
        one._over = True
    assert not one.is_main and one.rank == -1


def test_cudnn_benchmark(build, folder):
    """Which algorithm is fastest may differ from worker to worker: with bitwise it is not tried out, whenever the script asks for that."""
    kept = torch.backends.cudnn.benchmark
    try:
        for determinism in BOTH:
            torch.backends.cudnn.benchmark = True
            j = job(determinism=determinism)
            assert torch.backends.cudnn.benchmark == (determinism == "fast")
            torch.backends.cudnn.benchmark = True
            model = net()
            j.attach(model, torch.optim.SGD(model.parameters(), 0.1))
            assert torch.backends.cudnn.benchmark == (determinism == "fast")
    finally:
        torch.backends.cudnn.benchmark = kept
        torch.use_deterministic_algorithms(False)


def test_own_gpu(build, folder):
    """job.device: by the place of the worker on its instance, and never one that is not there."""
    from cluster import made_up_gpus

    for local, gpus, expected in (("1", 4, "cuda:1"), ("5", 4, "cuda:1"), ("3", 1, "cuda:0"), ("3", 0, "cpu")):
        j = job()
        with made_up_gpus(gpus, local, []):
            assert j.device == torch.device(expected), (local, gpus, j.device)


def test_values_of_weights(build, folder):
    """Elements from all over large parameters, in any layout, without a copy of the whole."""
    from tidemill.torch import guards

    large = [torch.zeros(300, 400), torch.zeros(50000), torch.zeros(64, 32, 5, 5).to(memory_format=torch.channels_last), torch.zeros(400, 300).t(),
             torch.zeros(()), torch.zeros(0), torch.full((7,), math.nan)]
    for tensor in large:
        tensor.requires_grad_(True)
        for most in (1 << 13, 100):
            some = guards.some_of(tensor, most)
            assert min(tensor.numel(), most // 4) <= some.numel() <= most and some.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
            assert all(min(size, 2) <= now for size, now in zip(tensor.shape, some.shape)), (tensor.shape, some.shape)
    values = guards._Values(large)
    values.keep()
    assert values.changed() is None
    for index in (4, 3, 2, 1, 0):
        large[index].data.add_(1.0)
        assert values.changed() == index
    for _ in range(guards._FIRST_STEPS):
        values.keep()
    large[4].data.add_(1.0)
    assert values.changed() is None  # no longer looked at


def test_watching_reads_no_tensor(build, folder):
    """What is looked at per step is counters and settings: no GPU is waited for, but in the first steps, once."""
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(100)])
    j = job()
    j.attach(model, torch.optim.AdamW(model.parameters(), 0.1))
    calls = []
    kept = torch.Tensor.item
    try:
        torch.Tensor.item = lambda self: calls.append(1) or kept(self)
        j._state.watch.check()
    finally:
        torch.Tensor.item = kept
    assert not calls

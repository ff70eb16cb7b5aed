"""What training scripts do, each as a small script: PATTERNS has its verdict (kept, or what the refusal says) and its code.

A script is given a job and returns what must come out alike however often it was killed. patterns.py NAME OUT [--gate FILE]
runs one as a worker (tests/torch_full)."""
import argparse
import copy
import os
import random
import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import (DataLoader, Dataset, DistributedSampler, IterableDataset, Subset, SubsetRandomSampler, WeightedRandomSampler,
                              get_worker_info)

import tidemill.torch

STEPS, BATCH, MICRO = 14, 8, 2
PATTERNS = {}
GATE = None  # of train_small, where the script is a worker


def pattern(verdict="kept"):
    """Registers a script. verdict: "kept", or a tuple of what the refusal says."""
    def take(function):
        PATTERNS[function.__name__] = (verdict, function)
        return function
    return take


class Points(Dataset):
    def __init__(self, noise=0.0, count=40):
        self.noise, self.count = noise, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        x = torch.randn(6, generator=torch.Generator().manual_seed(i))
        return x + self.noise * torch.randn(6), int(x.sum() > 0) + int(x[0] > 1)


def net(*more):
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), *more, nn.Linear(12, 3))


def sgd(model, **words):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, **words})


def state(model, **more):
    return {**{k: v.detach().clone() for k, v in model.state_dict().items()}, **more}


def loop(job, model, body, dataset=None, **words):
    """The loop that all of them have."""
    for number, (x, y) in enumerate(job.batches(Points() if dataset is None else dataset, **words)):
        if GATE is not None:
            GATE.wait(job.committed_step + 1, lambda: job.step().cancelled)
        body(number, x, y)
    assert job.done()


def simple(job, model, optimizer, scheduler=None, dataset=None, words=None, **attach):
    """Attach, and the plainest of bodies."""
    job.attach(model, optimizer, scheduler, **attach)
    loop(job, model, lambda n, x, y: job.backward(F.cross_entropy(model(x), y)), dataset, **(words or {}))
    return state(model, lr=torch.tensor(float(optimizer.param_groups[0]["lr"])))


# ---- optimizers and schedules ----

@pattern()
def plain_loop(job):
    model = net()
    return simple(job, model, sgd(model))


@pattern()
def calls_of_the_loop_left_in(job):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    job.attach(model, optimizer, schedule)

    def body(n, x, y):
        optimizer.zero_grad()
        with job.step() as step:
            step.backward(F.cross_entropy(model(x), y))
        optimizer.step()
        schedule.step()
        model.zero_grad()

    loop(job, model, body)
    return state(model)


@pattern()
def one_cycle(job):
    model = net()
    optimizer = sgd(model, momentum=0.9)
    return simple(job, model, optimizer, lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=STEPS + 1))


@pattern()
def warmup_then_decay(job):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    parts = [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    return simple(job, model, optimizer, lr_scheduler.SequentialLR(optimizer, parts, [4]))


@pattern()
def schedule_of_epochs(job):
    model = net()
    optimizer = torch.optim.Adadelta(model.parameters(), 1.0)
    return simple(job, model, optimizer, lr_scheduler.StepLR(optimizer, 1, 0.7), schedule="epoch")


@pattern()
def groups_without_decay(job):
    model = net(nn.LayerNorm(12))
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0, "lr": 0.02}], 0.01)
    return simple(job, model, optimizer)


@pattern()
def rate_by_step(job):
    """nanoGPT's loop, by the job's step."""
    model = net()
    optimizer = sgd(model)
    job.attach(model, optimizer)

    def body(n, x, y):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * (1 + job.committed_step) / STEPS
        job.backward(F.cross_entropy(model(x), y))
        optimizer.step()

    loop(job, model, body)
    return state(model)


@pattern(("'lr'", "counter", "job.committed_step"))
def rate_by_counter(job):
    """nanoGPT's loop, by a counter of its own."""
    model = net()
    optimizer = sgd(model)
    job.attach(model, optimizer)

    def body(n, x, y):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * (1 + n // 4) / STEPS
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body)


@pattern()
def rate_times_a_factor(job):
    model = net()
    optimizer = sgd(model)
    job.attach(model, optimizer)

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        optimizer.param_groups[0]["lr"] *= 0.9

    loop(job, model, body)
    assert abs(optimizer.param_groups[0]["lr"] - 0.1 * 0.9**STEPS) < 1e-9
    return state(model)


@pattern()
def momentum_and_decay_by_step(job):
    model = net()
    optimizer = sgd(model, momentum=0.5)
    job.attach(model, optimizer)

    def body(n, x, y):
        if job.committed_step >= 5:
            optimizer.param_groups[0].update(momentum=0.9, weight_decay=0.01)
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body)
    return state(model)


@pattern(("ReduceLROnPlateau",))
def plateau_as_schedule(job):
    model = net()
    optimizer = sgd(model)
    return simple(job, model, optimizer, lr_scheduler.ReduceLROnPlateau(optimizer))


@pattern()
def plateau_on_commit(job):
    model = net()
    optimizer = sgd(model)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    job.on_commit(lambda step, loss: plateau.step(loss))
    return simple(job, model, optimizer, state={"plateau": plateau})


@pattern(("LambdaLR", "another rate", "the step that it is given"))
def schedule_by_a_count_of_its_own(job):
    model, asked = net(), []
    optimizer = sgd(model)

    def rate(step):
        asked.append(step)
        return 0.9**len(asked)

    return simple(job, model, optimizer, lr_scheduler.LambdaLR(optimizer, rate))


@pattern(("StepLR.step()", "after 16 micro-batches", "schedule=\"epoch\""))
def schedule_of_epochs_in_the_loop(job):
    """Stepped where an epoch ends; the attached schedule would step with every step."""
    model, data = net(), Points()
    optimizer = sgd(model)
    schedule = lr_scheduler.StepLR(optimizer, 1, 0.7)
    job.attach(model, optimizer, schedule)
    for _ in job.epochs(data):
        for n, (x, y) in enumerate(job.batches(data)):
            job.backward(F.cross_entropy(model(x), y))
            if n == len(data) // MICRO - 1:
                schedule.step()


def schedule_in(job, name, every):
    model = net()
    optimizer = sgd(model)
    schedule = lr_scheduler.StepLR(optimizer, 3, 0.7)
    getattr(job, name)(lambda step, loss: schedule.step() if step % every == 0 else None)
    return simple(job, model, optimizer, schedule)


@pattern(("StepLR.step()", "job.on_commit once in 3 steps", "state={\"schedule\": scheduler}"))
def schedule_now_and_then_on_commit(job):
    return schedule_in(job, "on_commit", 3)


@pattern(("StepLR.step()", "job.after_step once in 3 steps", "lengths in steps"))
def schedule_now_and_then_in_after_step(job):
    return schedule_in(job, "after_step", 3)


@pattern()
def schedule_on_commit(job):
    return schedule_in(job, "on_commit", 1)


@pattern()
def schedule_in_after_step(job):
    return schedule_in(job, "after_step", 1)


@pattern()
def schedule_now_and_then_as_state(job):
    """As the refusal says."""
    model = net()
    optimizer = sgd(model)
    schedule = lr_scheduler.StepLR(optimizer, 1, 0.7)
    job.on_commit(lambda step, loss: schedule.step() if step % 3 == 0 else None)
    end = simple(job, model, optimizer, state={"schedule": schedule})
    assert abs(float(end["lr"]) - 0.1 * 0.7**(STEPS // 3)) < 1e-9
    return end


@pattern()
def schedule_where_the_script_accumulates(job):
    model = net()
    optimizer = sgd(model)
    schedule = lr_scheduler.StepLR(optimizer, 3, 0.7)
    job.attach(model, optimizer, schedule)

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        if (n + 1) % (BATCH // MICRO) == 0:
            optimizer.step()
            schedule.step()

    loop(job, model, body)
    return state(model)


@pattern(("the optimizer's state of 0.weight", "job.on_commit"))
def momentum_set_to_zero(job):
    model = net()
    optimizer = sgd(model, momentum=0.9)
    job.attach(model, optimizer)

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        for kept in optimizer.state.values():
            kept["momentum_buffer"].zero_()

    loop(job, model, body)


@pattern()
def momentum_set_to_zero_on_commit(job):
    model = net()
    optimizer = sgd(model, momentum=0.9)

    @job.on_commit
    def restart(step, loss):
        if step % 5 == 0:
            for kept in optimizer.state.values():
                kept["momentum_buffer"].zero_()

    return simple(job, model, optimizer)


@pattern(("another optimizer",))
def two_optimizers(job):
    model, other = net(), nn.Linear(6, 3)
    optimizer, second = sgd(model), sgd(other)
    job.attach(model, optimizer)

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        F.cross_entropy(other(x), y).backward()
        second.step()

    loop(job, model, body)


@pattern(("LBFGS",))
def lbfgs(job):
    model = net()
    return simple(job, model, torch.optim.LBFGS(model.parameters()))


@pattern(("step(closure)",))
def closures(job):
    model = net()
    optimizer = sgd(model)
    job.attach(model, optimizer)
    loop(job, model, lambda n, x, y: optimizer.step(lambda: F.cross_entropy(model(x), y)))


@pattern(("Lookahead", "plain torch.optim.Optimizer"))
def wrapped_by_lookahead(job):
    class Lookahead(torch.optim.Optimizer):
        def __init__(self, base):
            self.base = base
            self.param_groups, self.state, self.defaults = base.param_groups, base.state, base.defaults

    model = net()
    return simple(job, model, Lookahead(sgd(model)))


@pattern()
def prepared_by_accelerate(job):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    from accelerate import Accelerator
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    model, optimizer, schedule = Accelerator(cpu=True).prepare(model, optimizer, lr_scheduler.StepLR(optimizer, 5))
    job.attach(model, optimizer, schedule)

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()

    loop(job, model, body)
    return state(model)


@pattern(("StepLR", "not attached", "attach(model, optimizer, scheduler)"))
def schedule_not_attached(job):
    """It would step once per step, and begin anew with every worker."""
    model = net()
    optimizer = sgd(model)
    schedule = lr_scheduler.StepLR(optimizer, 3, 0.5)
    job.on_commit(lambda step, loss: schedule.step())
    return simple(job, model, optimizer)


@pattern()
def schedule_in_state(job):
    model = net()
    optimizer = sgd(model)
    parts = [lr_scheduler.ConstantLR(optimizer, 0.5, 3), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    schedule = lr_scheduler.ChainedScheduler(parts)
    job.on_commit(lambda step, loss: schedule.step())
    return simple(job, model, optimizer, state={"a": parts[0], "b": parts[1], "both": schedule})


@pattern(("Counts", "'calls'", "group[...]"))
def optimizer_that_counts(job):
    class Counts(torch.optim.SGD):
        calls = 0

        def __init__(self, params, lr):
            super().__init__(params, lr)
            self.calls = 0

        def step(self, closure=None):
            self.calls += 1
            self.param_groups[0]["lr"] = 0.1 / self.calls
            return super().step()

    model = net()
    return simple(job, model, Counts(model.parameters(), 0.1))


# ---- gradients ----

@pattern(("patterns.py:", ".backward()", "write job.backward(loss)"))
def backward_of_torch(job):
    model = net()
    job.attach(model, sgd(model))
    loop(job, model, lambda n, x, y: F.cross_entropy(model(x), y).backward())


@pattern(("twice",))
def two_backwards(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        job.backward(model(x).square().mean())

    loop(job, model, body)


@pattern()
def sum_of_losses(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        out = model(x)
        job.backward(F.cross_entropy(out, y, label_smoothing=0.1) + 0.01 * sum(p.square().sum() for p in model.parameters()))

    loop(job, model, body)
    return state(model)


@pattern()
def clip_in_the_loop(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)

    loop(job, model, body)
    return state(model)


@pattern()
def clip_attached(job):
    model = net()
    return simple(job, model, sgd(model), clip=0.1)


@pattern()
def clip_by_step(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        if job.committed_step >= 4:
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)

    loop(job, model, body)
    return state(model)


@pattern(("gradients were changed", "attach(..., clip"))
def clip_value_in_the_loop(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        nn.utils.clip_grad_value_(model.parameters(), 1e-3)

    loop(job, model, body)


@pattern(("gradients were changed", "attach(..., clip"))
def gradients_written_through_data(job):
    """As the tutorial of DQN has it: no counter of torch's sees it."""
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        for p in model.parameters():
            p.grad.data.clamp_(-1e-3, 1e-3)

    loop(job, model, body)


@pattern()
def clip_value_attached(job):
    model = net()
    return simple(job, model, sgd(model), clip_value=0.01)


@pattern()
def divided_and_scaled(job):
    model = net()
    job.attach(model, sgd(model))
    loop(job, model, lambda n, x, y: job.backward(F.cross_entropy(model(x), y) / 4, scale=4))
    return state(model)


@pattern()
def divided_by_micro_batches(job):
    """Warned of, once."""
    model = net()
    job.attach(model, sgd(model))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loop(job, model, lambda n, x, y: job.backward(F.cross_entropy(model(x), y) / 4))
    said = [str(w.message) for w in told if "number of micro-batches" in str(w.message)]
    assert len(said) == 1 and "scale=4" in said[0], said
    return state(model)


@pattern()
def hooks_on_tensors(job):
    model = net()
    model[0].weight.register_hook(lambda g: g * 0.5)
    return simple(job, model, sgd(model))


@pattern()
def gradient_penalty(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        x = x.clone().requires_grad_(True)
        loss = F.cross_entropy(model(x), y)
        penalty = torch.autograd.grad(loss, x, create_graph=True)[0].square().sum()
        job.backward(loss + 0.1 * penalty)

    loop(job, model, body)
    return state(model)


@pattern()
def autocast_bfloat16(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        job.backward(loss)

    loop(job, model, body)
    return state(model)


@pattern()
def float16_with_a_scaler(job):
    """The scale begins too large, so the first steps are skipped."""
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=4)
    job.attach(model, optimizer, scaler=scaler, clip=1.0)

    def body(n, x, y):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        job.backward(scaler.scale(loss))
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    loop(job, model, body)
    assert 0 < job._scale.skipped < STEPS and scaler.get_scale() != 2.0**24, job._scale.state_dict()
    return state(model, scale=torch.tensor(scaler.get_scale()), skipped=torch.tensor(job._scale.skipped))


@pattern(("GradScaler", "scaler=scaler"))
def scaler_not_attached(job):
    model = net()
    scaler = torch.amp.GradScaler("cpu")
    job.attach(model, sgd(model))
    loop(job, model, lambda n, x, y: job.backward(scaler.scale(F.cross_entropy(model(x), y))))


@pattern()
def scaler_not_enabled(job):
    model = net()
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    job.attach(model, optimizer)

    def body(n, x, y):
        job.backward(scaler.scale(F.cross_entropy(model(x), y)))
        scaler.step(optimizer)
        scaler.update()

    loop(job, model, body)
    return state(model)


# ---- models ----

@pattern()
def batch_norm(job):
    model = net(nn.BatchNorm1d(12))
    return simple(job, model, sgd(model))


@pattern()
def dropout(job):
    model = net(nn.Dropout(0.3))
    return simple(job, model, sgd(model))


@pattern()
def tied_weights(job):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.out = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False), nn.Linear(6, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.out(torch.tanh(self.b(torch.tanh(self.a(x)))))

    model = Tied()
    return simple(job, model, sgd(model))


@pattern()
def frozen_backbone(job):
    model = net()
    model[0].requires_grad_(False)
    return simple(job, model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1))


@pattern()
def frozen_with_an_old_gradient(job):
    """Of a look at the model before attach; the optimizer has all parameters."""
    model = net()
    model(torch.ones(2, 6)).sum().backward()
    model[0].requires_grad_(False)
    first = model[0].weight.clone()
    out = simple(job, model, sgd(model))
    assert torch.equal(first, model[0].weight)
    return out


@pattern(("0.weight was not trained", "has a gradient now"))
def thawed_for_a_while(job):
    model = net()
    model[0].requires_grad_(False)
    job.attach(model, sgd(model))

    def body(n, x, y):
        model[0].requires_grad_(True)
        job.backward(F.cross_entropy(model(x), y))
        model[0].requires_grad_(False)

    loop(job, model, body)


ELSEWHERE = ("is no longer where it was in the model", "before attach")


@pattern(("2.weight", *ELSEWHERE))
def head_replaced_after_attach(job):
    model = net()
    optimizer = sgd(model)
    job.attach(model, optimizer)
    model[2] = nn.Linear(12, 3)
    loop(job, model, lambda n, x, y: job.backward(F.cross_entropy(model(x), y)))


@pattern(("0.weight", *ELSEWHERE))
def weights_assigned_after_attach(job):
    """The optimizer would step weights that nothing uses."""
    model = net()
    job.attach(model, sgd(model))
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)
    loop(job, model, lambda n, x, y: job.backward(F.cross_entropy(model(x), y)))


@pattern(("2.weight", *ELSEWHERE))
def pruned_while_training(job):
    from torch.nn.utils import prune
    model = net()
    job.attach(model, sgd(model))
    job.after_step(lambda step, loss: prune.l1_unstructured(model[2], "weight", 0.5) if step == 5 else None)
    loop(job, model, lambda n, x, y: job.backward(F.cross_entropy(model(x), y)))


@pattern(("has a new parameter, 3.weight",))
def layer_added_after_attach(job):
    model = net()
    job.attach(model, sgd(model))
    model.append(nn.Linear(3, 3))
    loop(job, model, lambda n, x, y: job.backward(F.cross_entropy(model(x), y)))


@pattern()
def layer_wrapped_after_attach(job):
    """Which has the same parameters."""
    model = net()
    job.attach(model, sgd(model))
    model[0] = torch.compile(model[0], backend="eager")
    loop(job, model, lambda n, x, y: job.backward(F.cross_entropy(model(x), y)))
    return state(model)


@pattern()
def activation_checkpointing(job):
    from torch.utils.checkpoint import checkpoint
    model = net(nn.Dropout(0.2))
    job.attach(model, sgd(model))

    def body(n, x, y):
        job.backward(F.cross_entropy(model[2:](checkpoint(model[:2], x, use_reentrant=False)), y))

    loop(job, model, body)
    return state(model)


@pattern()
def weight_norm(job):
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 12)), nn.Tanh(), nn.Linear(12, 3))
    return simple(job, model, sgd(model))


@pattern(("buffer", "changes while the model trains"))
def spectral_norm(job):
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 12)), nn.Tanh(), nn.Linear(12, 3))
    return simple(job, model, sgd(model))


@pattern()
def compiled(job):
    model = torch.compile(net(), backend="eager")
    return simple(job, model, sgd(model))


@pattern(("DataParallel", "plain model"))
def data_parallel(job):
    model = nn.DataParallel(net())
    return simple(job, model, sgd(model))


@pattern(("outside of the attached optimizer's step",))
def clamped_in_the_loop(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        with torch.no_grad():
            model[0].weight.clamp_(-0.1, 0.1)

    loop(job, model, body)


@pattern(("0.weight", "outside of the attached optimizer's step", "through .data", "job.on_commit"))
def clamped_through_data(job):
    """As a WGAN's critic is; here what is clamped comes only after some steps."""
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        if job.committed_step > 4:
            for p in model.parameters():
                p.data.clamp_(-0.1, 0.1)
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body)


@pattern(("2.bias", "outside of the attached optimizer's step", "through .data"))
def nudged_through_data_in_after_step(job):
    model = net()
    job.after_step(lambda step, loss: model[2].bias.data.add_(1e-6) if step == 7 else None)
    return simple(job, model, sgd(model))


@pattern()
def averages_swapped_in_after_step(job):
    """For an evaluation, and back: the weights are what they were."""
    model = net()

    def evaluate(step, loss):
        kept = [p.data.clone() for p in model.parameters()]
        for p in model.parameters():
            p.data.mul_(0.5)
        for p, before in zip(model.parameters(), kept):
            p.data.copy_(before)

    job.after_step(evaluate)
    return simple(job, model, sgd(model))


@pattern()
def clamped_on_commit(job):
    model = net()

    @job.on_commit
    def clamp(step, loss):
        with torch.no_grad():
            model[0].weight.clamp_(-0.1, 0.1)

    out = simple(job, model, sgd(model))
    assert float(model[0].weight.detach().abs().max()) < 0.1001
    return out


# ---- state beside the model ----

@pattern()
def averaged_model(job):
    model = net()
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    job.attach(model, sgd(model), state={"ema": ema})

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        ema.update_parameters(model)

    loop(job, model, body)
    assert int(ema.n_averaged) == STEPS
    return state(model, **{f"ema {k}": v.clone() for k, v in ema.state_dict().items()})


@pattern(("AveragedModel", "state={"))
def averaged_model_not_attached(job):
    model = net()
    ema = AveragedModel(model)
    job.attach(model, sgd(model))

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        ema.update_parameters(model)

    loop(job, model, body)


@pattern()
def stochastic_weight_averaging(job):
    model = net()
    optimizer = sgd(model)
    average = AveragedModel(model)
    job.attach(model, optimizer, SWALR(optimizer, swa_lr=0.05, anneal_epochs=3), state={"swa": average})

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        if job.committed_step >= 6:
            average.update_parameters(model)

    loop(job, model, body)
    assert int(average.n_averaged) == STEPS - 6
    return state(model, **{f"swa {k}": v.clone() for k, v in average.state_dict().items()})


class Shadow:
    """An average of one's own, as many repositories have it."""

    def __init__(self, model):
        self.shadow = {k: v.detach().clone() for k, v in model.named_parameters()}
        self.count = 0

    def update(self, model):
        self.count += 1
        for k, v in model.named_parameters():
            self.shadow[k].data.mul_(0.9).add_(v.data, alpha=0.1)

    def state_dict(self):
        return {"shadow": self.shadow, "count": self.count}

    def load_state_dict(self, told):
        self.shadow, self.count = dict(told["shadow"]), told["count"]


@pattern()
def average_of_ones_own(job):
    model = net()
    ema = Shadow(model)
    job.on_commit(lambda step, loss: ema.update(model))
    out = simple(job, model, sgd(model), state={"ema": ema})
    assert ema.count == STEPS
    return {**out, **{f"ema {k}": v.clone() for k, v in ema.shadow.items()}}


@pattern(("state['ema", "job.on_commit"))
def average_changed_in_the_loop(job):
    model = net()
    ema = Shadow(model)
    job.attach(model, sgd(model), state={"ema": ema})

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        ema.update(model)

    loop(job, model, body)


@pattern(("changes while the job trains", "state={"))
def average_not_attached(job):
    model = net()
    ema = Shadow(model)

    def update(step, loss):
        ema.update(model)

    job.after_step(update)
    return simple(job, model, sgd(model))


LOST = ("changes while the job trains", "state={", "job.on_commit")


def updated_after_each_step(job, average, model, **attach):
    """average(step): what a script does beside the job."""
    job.after_step(lambda step, loss: average(step))
    return simple(job, model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1), **attach)


class Weighted:
    """The class that most repositories have: trained parameters alone, and each value replaced."""

    def __init__(self, model):
        self.model, self.shadow = model, {k: p.data.clone() for k, p in model.named_parameters() if p.requires_grad}

    def update(self, step):
        for name, p in self.model.named_parameters():
            if p.requires_grad:
                self.shadow[name] = (0.1 * p.data + 0.9 * self.shadow[name]).clone()


def partly_frozen():
    model = net(nn.Linear(12, 12))
    model[0].requires_grad_(False)
    return model


@pattern(LOST)
def average_of_trained_parameters(job):
    model = partly_frozen()
    return updated_after_each_step(job, Weighted(model).update, model)


@pattern(LOST)
def average_as_a_list_in_place(job):
    model = partly_frozen()
    kept = [p.detach().clone() for p in model.parameters() if p.requires_grad]

    def update(step):
        torch._foreach_lerp_(kept, [p.detach() for p in model.parameters() if p.requires_grad], 0.1)

    return updated_after_each_step(job, update, model)


@pattern(LOST)
def average_as_a_list_made_anew(job):
    model = net()
    kept = [p.detach().clone() for p in model.parameters()]

    def update(step):
        nonlocal kept
        kept = [0.9 * a + 0.1 * p.detach() for a, p in zip(kept, model.parameters())]

    return updated_after_each_step(job, update, model)


@pattern(LOST)
def average_in_an_attribute_made_anew(job):
    class Kept:
        pass

    model, keeper = net(), Kept()
    keeper.weights = tuple(p.detach().clone() for p in model.parameters())

    def update(step):
        keeper.weights = tuple(0.9 * a + 0.1 * p.detach() for a, p in zip(keeper.weights, model.parameters()))

    return updated_after_each_step(job, update, model)


@pattern(LOST)
def average_of_a_flat_vector(job):
    model = net()
    kept = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    return updated_after_each_step(job, lambda step: kept.lerp_(nn.utils.parameters_to_vector(model.parameters()).detach(), 0.1), model)


@pattern(LOST)
def average_by_the_parameter(job):
    """Keyed by the parameter itself, as an optimizer's state is."""
    model = net()
    kept = {p: p.detach().clone() for p in model.parameters()}

    def update(step):
        for p, average in kept.items():
            average.mul_(0.9).add_(p.detach(), alpha=0.1)

    return updated_after_each_step(job, update, model)


@pattern(("a Sequential is no part of the attached model", *LOST))
def teacher_of_a_part(job):
    """A momentum encoder, as MoCo and BYOL have it, of a part of the model."""
    model = nn.Sequential(net(), nn.Tanh(), nn.Linear(3, 3))
    teacher = copy.deepcopy(model[0]).requires_grad_(False)

    def follow(step):
        for p, q in zip(model[0].parameters(), teacher.parameters()):
            q.data.lerp_(p.data, 0.1)

    return updated_after_each_step(job, follow, model)


@pattern(LOST)
def best_weights_so_far(job):
    """Kept in memory, to be saved when the training has ended."""
    model, best = net(), {"loss": float("inf"), "weights": None}
    best["weights"] = copy.deepcopy(model.state_dict())

    def keep(step):
        if step in (5, 7):
            best["weights"] = copy.deepcopy(model.state_dict())

    return updated_after_each_step(job, keep, model)


@pattern()
def copies_that_do_no_harm(job):
    """First weights to measure a distance from, the last step's, differences, gradients' sizes: made anew with each step, or never changed."""
    model = net()
    first, kept = copy.deepcopy(model), {}

    def look(step):
        now = [p.detach().clone() for p in model.parameters()]
        kept["moved"] = [a - b for a, b in zip(now, kept.get("last", now))]
        kept["last"] = now
        kept["distance"] = sum((a - b.detach()).square().sum() for a, b in zip(now, first.parameters()))
        kept["flat"] = nn.utils.parameters_to_vector(model.parameters()).detach()

    return updated_after_each_step(job, look, model)


class Counters:
    def __init__(self):
        self.best, self.history, self.seen = float("inf"), [0.0] * STEPS, torch.zeros(3, dtype=torch.int64)

    def state_dict(self):
        return {"best": self.best, "history": list(self.history), "seen": self.seen}

    def load_state_dict(self, told):
        self.best, self.history, self.seen = told["best"], list(told["history"]), told["seen"].clone()


@pattern()
def counters_and_the_best_loss(job):
    model, kept = net(), Counters()

    @job.on_commit
    def count(step, loss):
        kept.best = min(kept.best, loss)
        kept.history[step - 1] = loss
        kept.seen[step % 3] += 1

    out = simple(job, model, sgd(model), state={"counters": kept})
    assert all(kept.history) and kept.best == min(kept.history) and int(kept.seen.sum()) == STEPS
    return {**out, "history": torch.tensor(kept.history), "seen": kept.seen.clone()}


@pattern()
def early_stopping(job):
    model, kept = net(), Counters()

    @job.on_commit
    def stop(step, loss):
        kept.best = min(kept.best, loss)
        kept.seen[0] = int(kept.seen[0]) + 1 if loss > kept.best else 0
        if int(kept.seen[0]) >= 2 or step == 11:
            job.stop()

    out = simple(job, model, sgd(model), state={"counters": kept})
    assert 2 < job.committed_step < STEPS, job.committed_step
    return {**out, "step": torch.tensor(job.committed_step)}


@pattern(("no state_dict()",))
def state_without_state_dict(job):
    model = net()
    return simple(job, model, sgd(model), state={"best": 3.0})


@pattern(("'passes' of the model", "job.committed_step"))
def counter_of_a_model(job):
    class Anneals(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.passes = net(), 0

        def forward(self, x):
            self.passes += 1
            return self.inner(x) * (1 + 0.01 * self.passes)

    model = Anneals()
    return simple(job, model, sgd(model))


@pattern(("'center' of the module loss_of", "on_commit"))
def average_in_a_loss(job):
    class Centered(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("center", torch.zeros(3))

        def forward(self, out, y):
            self.center = 0.9 * self.center + 0.1 * out.detach().mean(0)
            return F.cross_entropy(out - self.center, y)

    model, loss_of = net(), Centered()
    job.attach(model, sgd(model))
    loop(job, model, lambda n, x, y: job.backward(loss_of(model(x), y)))


@pattern(("'p' of the module 2",))
def dropout_by_counter(job):
    model = net(nn.Dropout(0.0))
    job.attach(model, sgd(model))

    def body(n, x, y):
        model[2].p = 0.01 * n
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body)


@pattern()
def dropout_by_step(job):
    model = net(nn.Dropout(0.0))
    job.attach(model, sgd(model))

    def body(n, x, y):
        model[2].p = 0.02 * job.committed_step
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body)
    return state(model)


# ---- data ----

@pattern()
def augmentation(job):
    model = net()
    return simple(job, model, sgd(model), dataset=Points(0.1))


@pattern()
def mixup_in_the_loop(job):
    import numpy
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        share = float(numpy.random.beta(0.4, 0.4)) * random.random()
        order = torch.randperm(len(x))
        out = model(share * x + (1 - share) * x[order])
        job.backward(share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order]))

    loop(job, model, body)
    return state(model)


@pattern()
def collate_of_ones_own(job):
    model = net()

    def collate(rows):
        return torch.stack([x for x, _ in rows]) * 2, torch.tensor([y for _, y in rows])

    return simple(job, model, sgd(model), words={"collate": collate})


@pattern()
def data_loader_shuffled(job):
    model = net()
    return simple(job, model, sgd(model), dataset=DataLoader(Points(), batch_size=MICRO, shuffle=True, pin_memory=False))


@pattern()
def data_loader_in_order(job):
    model = net()
    return simple(job, model, sgd(model), dataset=DataLoader(Points(), batch_size=MICRO))


@pattern(("batch_size is 5", "micro_batch 2"))
def data_loader_of_another_size(job):
    model = net()
    return simple(job, model, sgd(model), dataset=DataLoader(Points(), batch_size=5))


@pattern()
def weighted_sampler(job):
    model = net()
    sampler = WeightedRandomSampler([1.0 + i % 3 for i in range(40)], 30, generator=torch.Generator())
    return simple(job, model, sgd(model), dataset=DataLoader(Points(), batch_size=MICRO, sampler=sampler))


class Drawn:
    """A sampler with random numbers of its own, or one whose order depends on how often it was asked."""

    def __init__(self, counts):
        self.random, self.asked, self.counts = random.Random(1), 0, counts

    def __len__(self):
        return 40

    def __iter__(self):
        self.asked += 1
        return iter([i * 3**self.asked % 40 for i in range(40)] if self.counts else self.random.sample(range(40), 40))


@pattern()
def sampler_with_random_numbers_of_its_own(job):
    model = net()
    return simple(job, model, sgd(model), words={"sampler": Drawn(False)})


@pattern(("Drawn", "another order", "set_epoch"))
def sampler_that_counts(job):
    model = net()
    return simple(job, model, sgd(model), words={"sampler": Drawn(True)})


class Lines(IterableDataset):
    """A stream that shuffles in a buffer and draws noise."""

    def __iter__(self):
        for i in range(30):
            x = torch.randn(6, generator=torch.Generator().manual_seed(i)) + 0.1 * torch.randn(6)
            yield x, int(x.sum() > 0)


@pattern()
def iterable_data_set(job):
    model = net()
    return simple(job, model, sgd(model), dataset=Lines())


@pattern()
def stream_with_a_collate_that_draws(job):
    """Masks drawn when a batch is made, as for a masked language model."""
    def collate(rows):
        x, y = torch.stack([r[0] for r in rows]), torch.tensor([r[1] for r in rows])
        return x * (torch.rand(x.shape) > 0.3), y

    model = net()
    return simple(job, model, sgd(model), dataset=Lines(), words={"collate": collate})


class Shared(IterableDataset):
    """A stream that is shared out among the processes that load it; batches: it makes them itself."""

    def __init__(self, batches=False):
        self.batches = batches

    def __iter__(self):
        info = get_worker_info()
        at, step = (info.id, info.num_workers) if info is not None else (0, 1)
        for i in range(at, 31, step):
            x = torch.randn(MICRO if self.batches else 1, 6, generator=torch.Generator().manual_seed(i))
            x = x + 0.1 * torch.randn(x.shape)
            yield (x, (x.sum(1) > 0).long()) if self.batches else (x[0], int(x.sum() > 0))


@pattern()
def stream_loaded_by_processes(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        x.mul_(0.5)  # in place: a step that is done again must not find it
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body, DataLoader(Shared(), MICRO, num_workers=2))
    return state(model)


@pattern()
def stream_of_batches(job):
    model = net()
    return simple(job, model, sgd(model), dataset=DataLoader(Shared(batches=True), None))


class SplitByNode(Shared):
    """As WebDataset's split_by_node and split_by_worker."""

    def __iter__(self):
        node, nodes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        for number, item in enumerate(super().__iter__()):
            if number % nodes == node:
                yield item


class Buffered(IterableDataset):
    """A stream that shuffles with a generator of its own, or one that it makes from the time, as WebDataset's does by default."""

    def __init__(self, rng=None):
        self.rng = rng

    def __iter__(self):
        rng, order = self.rng or random.Random(os.urandom(8)), list(range(30))
        rng.shuffle(order)
        yield from (Points()[i] for i in order)


@pattern()
def stream_that_shuffles_by_its_generator(job):
    model = net()
    return simple(job, model, sgd(model), dataset=Buffered(random.Random(0)))


@pattern()
def stream_that_shuffles_by_its_generator_elsewhere(job):
    model = net()
    return simple(job, model, sgd(model), dataset=DataLoader(Buffered(random.Random(0)), MICRO, num_workers=1))


@pattern()
def stream_split_by_node(job):
    model = net()
    return simple(job, model, sgd(model), dataset=SplitByNode())


@pattern(("Shared", "sampler"))
def stream_with_a_sampler(job):
    model = net()
    return simple(job, model, sgd(model), dataset=Shared(), words={"sampler": range(31)})


@pattern(("Lines, a stream", "job.batches(dataset)"))
def epochs_of_a_stream(job):
    model = net()
    job.attach(model, sgd(model))
    for _ in job.epochs(DataLoader(Lines(), MICRO)):
        pass


@pattern()
def mean_over_counted_items(job):
    """A loss over those items of the whole step that count, on however many workers."""
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        step = job.step()
        assert step.count is not None
        loss = (F.cross_entropy(model(x), y, reduction="none") * (y > 0)).sum() / (1.0 + step.count)
        job.backward(loss, scale=job.micro_batches)

    loop(job, model, body, count=lambda batch: (batch[1] > 0).sum())
    return state(model)


@pattern()
def loop_over_epochs(job):
    """Something between epochs, a schedule of epochs, an evaluation."""
    model, data = net(nn.Dropout(0.2)), Points()
    optimizer = sgd(model)
    schedule = lr_scheduler.StepLR(optimizer, 1, 0.7)
    job.attach(model, optimizer, schedule, schedule="epoch")
    seen = []
    for epoch in job.epochs(data):
        model.train()
        for x, y in job.batches(data):
            if GATE is not None:
                GATE.wait(job.committed_step + 1, lambda: job.step().cancelled)
            job.backward(F.cross_entropy(model(x), y))
        model.eval()
        with torch.no_grad():
            F.cross_entropy(model(torch.randn(4, 6)), torch.tensor([0, 1, 2, 0]))
        schedule.step()
        seen.append(epoch)
    assert job.done() and seen and seen[-1] == (STEPS - 1) * BATCH // 40 and seen == sorted(set(seen)), seen
    return state(model)


def epochs_of(job, data, items, **words):
    """Epochs of so many items, whatever the data set has, and their numbers."""
    model = net()
    optimizer = sgd(model)
    job.attach(model, optimizer, lr_scheduler.StepLR(optimizer, 1, 0.7), schedule="epoch")
    for epoch in job.epochs(data):
        assert epoch == job.committed_step * BATCH // items, (epoch, job.committed_step)
        for x, y in job.batches(data, **words):
            job.backward(F.cross_entropy(model(x), y))
    assert job.done() and abs(optimizer.param_groups[0]["lr"] - 0.1 * 0.7**(STEPS * BATCH // items)) < 1e-9
    return state(model)


@pattern()
def epochs_of_a_sampler_of_a_part(job):
    return epochs_of(job, DataLoader(Points(), batch_size=2, sampler=SubsetRandomSampler(range(16))), 16)


@pattern()
def epochs_of_a_subset(job):
    return epochs_of(job, Subset(Points(), range(24)), 24)


@pattern()
def epochs_of_a_sampler_that_draws_more(job):
    return epochs_of(job, DataLoader(Points(count=8), batch_size=2, sampler=WeightedRandomSampler([1.0] * 8, 24)), 24)


@pattern(("40 items an epoch", "job.batches with 16", "same DataLoader"))
def epochs_without_the_sampler(job):
    return epochs_of(job, Points(), 40, sampler=SubsetRandomSampler(range(16)))


@pattern(("StepLR.step()", "schedule=\"epoch\"", "job.epochs"))
def schedule_stepped_between_epochs(job):
    model, data = net(), Points()
    optimizer = sgd(model)
    schedule = lr_scheduler.StepLR(optimizer, 1, 0.7)
    job.attach(model, optimizer, schedule)
    for _ in job.epochs(data):
        for x, y in job.batches(data):
            job.backward(F.cross_entropy(model(x), y))
        schedule.step()


@pattern(("StepLR.step()", "schedule=\"epoch\"", "job.epochs"))
def schedule_stepped_after_the_loop(job):
    model, data = net(), Points()
    optimizer = sgd(model)
    schedule = lr_scheduler.StepLR(optimizer, 1, 0.7)
    job.attach(model, optimizer, schedule)
    for _ in range(3):
        for x, y in job.batches(data):
            job.backward(F.cross_entropy(model(x), y))
        schedule.step()


@pattern(("called again", "job.epochs(dataset)", "range"))
def epochs_by_range(job):
    model, data = net(), Points()
    job.attach(model, sgd(model))
    for _ in range(3):
        for x, y in job.batches(data):
            job.backward(F.cross_entropy(model(x), y))


@pattern(("given other data", "ConcatDataset"))
def other_data_in_a_later_epoch(job):
    model, parts = net(), (DataLoader(Points(), batch_size=2), DataLoader(Points(noise=5.0), batch_size=2))
    job.attach(model, sgd(model))
    for epoch in job.epochs(parts[0]):
        for x, y in job.batches(parts[epoch > 0]):
            job.backward(F.cross_entropy(model(x), y))


@pattern()
def data_loader_of_every_epoch(job):
    model, data = net(), Points()
    job.attach(model, sgd(model))
    for _ in job.epochs(data):
        for x, y in job.batches(DataLoader(data, batch_size=2, shuffle=True)):
            job.backward(F.cross_entropy(model(x), y))
    return state(model)


@pattern(("left early (break)", "job.stop()"))
def second_loop_after_break(job):
    model, data = net(), Points()
    job.attach(model, sgd(model))
    for number, (x, y) in enumerate(job.batches(data)):
        job.backward(F.cross_entropy(model(x), y))
        if number == 7:
            break
    for x, y in job.batches(Points(noise=1.0)):
        job.backward(F.cross_entropy(model(x), y))


@pattern()
def break_in_the_last_step(job):
    """As scripts with max_steps have it; the first step comes twice."""
    model, data = net(), Points()
    job.attach(model, sgd(model))
    for x, y in job.batches(data):
        job.backward(F.cross_entropy(model(x), y))
        if job.committed_step == STEPS - 1 and job.step().micro_batch == BATCH // MICRO - 1:
            break
    assert job.done() and job.committed_step == STEPS
    return state(model)


@pattern(("Adam that is attached has stepped", "leave the loading out", "start=FOLDER"))
def checkpoint_of_ones_own(job):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    model(torch.ones(1, 6)).sum().backward()
    optimizer.step()
    again = torch.optim.Adam(model.parameters(), 0.01)
    again.load_state_dict(optimizer.state_dict())
    return simple(job, model, again)


@pattern()
def adagrad(job):
    """Which has state from the start."""
    model = net()
    return simple(job, model, torch.optim.Adagrad(model.parameters(), 0.1))


@pattern(("the gradient of 0.weight", "register_hook"))
def hook_by_counter(job):
    model, calls = net(), []
    job.attach(model, sgd(model))

    def scale(gradient):
        calls.append(1)
        return gradient / len(calls)

    model[0].weight.register_hook(scale)
    loop(job, model, lambda n, x, y: job.backward(F.cross_entropy(model(x), y)))


@pattern()
def model_moved_and_back(job):
    """As model.cpu() and model.cuda() around torch.save: parameters and gradients get memory of their own."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    job.attach(model, optimizer)
    job.after_step(lambda step, loss: model.double().float())

    def body(n, x, y):
        if job.step().micro_batch % 2:
            model.double().float()
        loss = F.cross_entropy(model(x), y)
        job.backward(loss)
        model.double().float()

    first = copy.deepcopy(model)
    loop(job, model, body)
    moved = (first[0].weight - model[0].weight).abs().max()
    assert moved > 0.01, moved
    return state(model)


@pattern()
def evaluation_in_after_step(job):
    model = net(nn.Dropout(0.2), nn.BatchNorm1d(12))

    @job.after_step
    def look(step, loss):
        model.eval()
        with torch.no_grad():
            model(torch.randn(4, 6))
        model.train()

    return simple(job, model, sgd(model))


@pattern(("training mode", "model.train() for every micro-batch"))
def evaluation_that_stays(job):
    """In the loop, and nobody says model.train(): another worker, or this one begun anew, would have dropout."""
    model = net(nn.Dropout(0.3))
    job.attach(model, sgd(model))

    def body(n, x, y):
        if n % 16 == 10:
            model.eval()
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body)


@pattern()
def frozen_statistics_by_step(job):
    model = net(nn.BatchNorm1d(12))
    job.attach(model, sgd(model))

    def body(n, x, y):
        model.train()
        if job.committed_step >= 6:
            model[2].eval()
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body)
    return state(model)


@pattern()
def evaluation_by_one_worker(job):
    model = net(nn.Dropout(0.3))
    job.attach(model, sgd(model))

    def body(n, x, y):
        if job.is_main and job.committed_step % 3 == 0 and job.step().micro_batch == 0:
            with job.evaluation():
                model.eval()
                model(torch.randn(4, 6))
                model.train()
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body)
    return state(model)


@pattern(("outside of the attached optimizer's step",))
def embedding_with_max_norm(job):
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.out = nn.Embedding(3, 5, max_norm=0.1), nn.Linear(5, 3)

        def forward(self, x):
            return self.out(self.rows((x[:, 0] > 0).long()))

    model = Rows()
    return simple(job, model, sgd(model))


@pattern()
def processes_that_load(job):
    """With what each of them does first."""
    class Opened(Points):
        offset = None

        def __getitem__(self, i):
            x, y = super().__getitem__(i)
            return x + self.offset, y  # an error where nobody has opened it

    def open_it(number):
        torch.utils.data.get_worker_info().dataset.offset = 0.5

    model = net()
    loader = DataLoader(Opened(0.1), MICRO, shuffle=True, num_workers=1, worker_init_fn=open_it, prefetch_factor=3)
    return simple(job, model, sgd(model), dataset=loader)


@pattern()
def generators_of_ones_own(job):
    """In the loop and in the data set: seeded by step and micro-batch, as torch's own are."""
    import numpy
    draw, noise = torch.Generator().manual_seed(0), random.Random(0)

    class Noisy(Points):
        def __init__(self):
            super().__init__()
            self.rng = numpy.random.default_rng(0)

        def __getitem__(self, i):
            x, y = super().__getitem__(i)
            return x + 0.1 * torch.from_numpy(self.rng.standard_normal(6)).float(), y

    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        mixed = torch.rand(len(x), 1, generator=draw) * noise.random()
        job.backward(F.cross_entropy(model(x * (1 + mixed)), y))

    loop(job, model, body, Noisy())
    return state(model)


class Jitter(nn.Module):
    """A transform that is a module, with a generator that it makes when it is first used."""

    def __init__(self):
        super().__init__()
        self.rng = None

    def forward(self, x):
        if self.rng is None:
            self.rng = random.Random(7)
        return x + 0.1 * self.rng.random()


class Transformed(Dataset):
    """A wrapper, as many data sets are."""

    def __init__(self, inner, transform):
        self.inner, self.transform = inner, transform

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, i):
        x, y = self.inner[i]
        return self.transform(x), y


SHARED_RNG = random.Random(3)


def shaken(x, amount=0.1):
    return x + amount * SHARED_RNG.random()


@pattern()
def generators_deep_in_a_data_set(job):
    """In modules, closures, partial functions, slots, globals of functions, and wrappers around them."""
    import functools
    closed, given = random.Random(1), torch.Generator().manual_seed(2)

    def noise(x):
        return x + 0.1 * closed.random()

    class Slotted:
        __slots__ = ("rng",)

        def __init__(self):
            self.rng = random.Random(4)

        def __call__(self, x):
            return x * (1 + 0.1 * self.rng.random())

    def drawn(generator, x):
        return x + 0.1 * torch.rand(6, generator=generator)

    data = Points()
    for transform in (nn.Sequential(nn.Identity(), Jitter()), noise, functools.partial(drawn, given), Slotted(), shaken,
                      lambda x, inner=Slotted(): inner(x)):
        data = Transformed(Subset(data, range(40)), transform)
    model = net()
    return simple(job, model, sgd(model), dataset=data)


class Masking:
    """A collate function with a generator of its own, as DataCollatorForLanguageModeling has it."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self, rows):
        x = torch.stack([row[0] for row in rows])
        return x * (torch.rand(x.shape, generator=self.generator) > 0.3), torch.tensor([row[1] for row in rows])


@pattern()
def generator_of_a_collate_function(job):
    model = net()
    return simple(job, model, sgd(model), dataset=DataLoader(Points(), MICRO, shuffle=True, collate_fn=Masking()))


@pattern()
def generator_of_a_collate_function_elsewhere(job):
    """Batches are made by processes that load."""
    model = net()
    return simple(job, model, sgd(model), dataset=DataLoader(Points(), MICRO, shuffle=True, collate_fn=Masking(), num_workers=2))


@pattern()
def generator_of_a_collate_function_of_a_stream(job):
    model = net()
    return simple(job, model, sgd(model), dataset=Lines(), words={"collate": Masking()})


class Drops(nn.Module):
    """Dropout with a generator of its own."""

    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x):
        return x * (torch.rand(x.shape, generator=self.generator) > 0.2)


@pattern()
def generators_in_attributes_of_the_script(job):
    """Of its trainer, of a module, and behind a function that it calls."""
    class Runner:
        def __init__(self):
            self.tools = {"rng": random.Random(2), "noise": [torch.Generator().manual_seed(1)]}
            self.model = net(Drops())

        def mixed(self, x):
            return x * (1 + self.tools["rng"].random()) + 0.1 * torch.rand(x.shape, generator=self.tools["noise"][0])

        def run(self):
            job.attach(self.model, sgd(self.model))
            loop(job, self.model, lambda n, x, y: job.backward(F.cross_entropy(self.model(shaken(self.mixed(x))), y)))
            return state(self.model)

    return Runner().run()


@pattern(("random.SystemRandom", "cannot be seeded"))
def numbers_of_the_machine(job):
    model, draw = net(), random.SystemRandom()
    return simple(job, model, sgd(model), dataset=Transformed(Points(), lambda x: x + draw.random()))


# ---- what other people's scripts keep between micro-batches ----

TWICE = ("computed twice", "job.committed_step", "try_twice=False")


@pattern(TWICE)
def weight_of_a_loss_by_counter(job):
    """KL annealing of a VAE: the counter counts steps as the script accumulates them."""
    model, count = net(), [0]
    job.attach(model, sgd(model))

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y) + min(1.0, count[0] / 10) * model(x).square().mean())
        if (n + 1) % (BATCH // MICRO) == 0:
            count[0] += 1

    loop(job, model, body)


@pattern()
def weight_of_a_loss_by_step(job):
    model = net()
    job.attach(model, sgd(model))
    loop(job, model, lambda n, x, y: job.backward(F.cross_entropy(model(x), y)
                                                  + min(1.0, job.committed_step / 10) * model(x).square().mean()))
    return state(model)


@pattern(TWICE)
def hidden_states_from_batch_to_batch(job):
    class Rnn(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.out = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, x, hidden):
            out, hidden = self.rnn(x.unsqueeze(1), hidden)
            return self.out(out[:, 0]), hidden

    model, kept = Rnn(), [torch.zeros(1, MICRO, 8)]
    job.attach(model, sgd(model))

    def body(n, x, y):
        out, kept[0] = model(x, kept[0].detach())
        job.backward(F.cross_entropy(out, y))

    loop(job, model, body)


@pattern(TWICE)
def memory_bank(job):
    model, bank, at = net(), torch.zeros(40, 3), [0]
    job.attach(model, sgd(model))

    def body(n, x, y):
        out = model(x)
        job.backward(F.cross_entropy(out, y) + (out.mean(0) - bank.mean(0)).square().sum())
        bank[at[0]: at[0] + MICRO] = out.detach()
        at[0] = (at[0] + MICRO) % len(bank)

    loop(job, model, body)


@pattern(TWICE)
def weights_of_losses_that_adapt(job):
    model, weights = net(), torch.ones(2)
    job.attach(model, sgd(model))

    def body(n, x, y):
        losses = torch.stack([F.cross_entropy(model(x), y), model(x).square().mean()])
        job.backward((weights * losses).sum())
        weights.mul_(torch.exp(-0.01 * losses.detach()))

    loop(job, model, body)


class Student(nn.Module):
    """With its teacher inside, as BYOL and MoCo have it."""

    def __init__(self):
        super().__init__()
        self.online = net()
        self.target = copy.deepcopy(self.online).requires_grad_(False)


@pattern(("is not trained, and changes", "state={", "on_commit"))
def teacher_inside_the_model(job):
    model = Student()
    job.attach(model, sgd(model.online))

    def body(n, x, y):
        with torch.no_grad():
            wanted = model.target(x)
        job.backward(F.cross_entropy(model.online(x), y) + F.mse_loss(model.online(x), wanted))
        for p, q in zip(model.online.parameters(), model.target.parameters()):
            q.data.mul_(0.9).add_(p.data, alpha=0.1)

    loop(job, model, body)


@pattern()
def teacher_attached(job):
    model = net()
    teacher = copy.deepcopy(model).requires_grad_(False)

    @job.on_commit
    def follow(step, loss):
        with torch.no_grad():
            for p, q in zip(model.parameters(), teacher.parameters()):
                q.lerp_(p, 0.1)

    job.attach(model, sgd(model), state={"teacher": teacher})

    def body(n, x, y):
        with torch.no_grad():
            wanted = teacher(x)
        job.backward(F.cross_entropy(model(x), y) + F.mse_loss(model(x), wanted))

    loop(job, model, body)
    return state(model, **{f"teacher {k}": v.clone() for k, v in teacher.state_dict().items()})


@pattern(("is like the model and changes",))
def target_network_copied_by_counter(job):
    model = net()
    target = copy.deepcopy(model)
    job.attach(model, sgd(model))

    def body(n, x, y):
        with torch.no_grad():
            wanted = target(x)
        job.backward(F.cross_entropy(model(x), y) + F.mse_loss(model(x), wanted))
        if n % 16 == 15:
            target.load_state_dict(model.state_dict())

    loop(job, model, body)


def stepped(job, when, end=lambda: False):
    model = net()
    optimizer = sgd(model)
    job.attach(model, optimizer)
    for n, (x, y) in enumerate(job.batches(Points())):
        job.backward(F.cross_entropy(model(x), y))
        if end():
            break
        if when(n, model):
            optimizer.step()
            optimizer.zero_grad()
    assert job.done() and job.committed_step == STEPS
    return state(model)


CONDITION = ("optimizer.step()", "under a condition", "in step 5", "clip=MAX_NORM")


@pattern(CONDITION)
def step_but_for_large_gradients(job):
    """Skipped where a norm is too large."""
    norms = iter([1.0] * 20 + [99.0] * 4 + [1.0] * 99)  # the first step comes twice
    return stepped(job, lambda n, model: next(norms) < 10.0)


@pattern(CONDITION)
def step_but_for_a_micro_batch(job):
    return stepped(job, lambda n, model: job.step().number != 5 or job.step().micro_batch != 2)


@pattern()
def step_in_every_micro_batch(job):
    return stepped(job, lambda n, model: True)


@pattern()
def step_where_the_script_accumulates(job):
    return stepped(job, lambda n, model: (n + 1) % 4 == 0)


@pattern()
def step_in_the_last_micro_batch(job):
    return stepped(job, lambda n, model: job.step().micro_batch == BATCH // MICRO - 1)


@pattern()
def break_before_the_last_step(job):
    return stepped(job, lambda n, model: True, lambda: job.step().number == STEPS and job.step().micro_batch == BATCH // MICRO - 1)


@pattern(("a norm to clip at", "another micro-batch"))
def clip_where_the_script_accumulates(job):
    """Every fourth micro-batch of this process: of another worker it is another one."""
    model = net()
    optimizer = sgd(model)
    job.attach(model, optimizer)

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        if (n + 1) % 4 == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()

    loop(job, model, body)


@pattern(("gradients were changed",))
def noise_on_gradients(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        for p in model.parameters():
            p.grad.add_(0.01 * torch.randn_like(p))

    loop(job, model, body)


@pattern(("SAM", "a wrapper around SGD"))
def sharpness_aware(job):
    class SAM(torch.optim.Optimizer):
        def __init__(self, params, base, **words):
            super().__init__(params, words)
            self.base_optimizer = base(self.param_groups, **words)
            self.param_groups = self.base_optimizer.param_groups

    model = net()
    return simple(job, model, SAM(model.parameters(), torch.optim.SGD, lr=0.1))


class ScheduleFree(torch.optim.Optimizer):
    """As its authors' SGD: weights are averages, and `eval` and `train` go from one to the other in place."""

    def __init__(self, params, lr=0.1, momentum=0.9):
        super().__init__(params, dict(lr=lr, momentum=momentum, k=0, train_mode=True, weight_sum=0.0))

    @torch.no_grad()
    def eval(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.lerp_(self.state[p]["z"], 1 - 1 / group["momentum"])
            group["train_mode"] = False

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            assert group["train_mode"]
            group["weight_sum"] += group["lr"] ** 2
            share = group["lr"] ** 2 / group["weight_sum"]
            for p in [p for p in group["params"] if p.grad is not None]:
                z = self.state[p].setdefault("z", torch.clone(p))
                p.lerp_(z, share).add_(p.grad, alpha=group["lr"] * (group["momentum"] * (1 - share) - 1))
                z.sub_(p.grad, alpha=group["lr"])
            group["k"] += 1


@pattern()
def schedule_free(job):
    model = net()
    optimizer = ScheduleFree(model.parameters())
    out = simple(job, model, optimizer)
    assert optimizer.param_groups[0]["k"] == STEPS
    return out


@pattern(("'train_mode'", "between two steps"))
def schedule_free_that_evaluates(job):
    model = net()
    optimizer = ScheduleFree(model.parameters())
    job.after_step(lambda step, loss: optimizer.eval())
    return simple(job, model, optimizer)


@pattern(("ReduceLROnPlateau", "not attached"))
def plateau_by_validation(job):
    model = net()
    optimizer = sgd(model)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    job.after_step(lambda step, loss: plateau.step(float(model(torch.ones(1, 6)).detach().sum())))
    return simple(job, model, optimizer)


@pattern(("SyncBatchNorm",))
def sync_batch_norm(job):
    model = nn.SyncBatchNorm.convert_sync_batchnorm(net(nn.BatchNorm1d(12)))
    return simple(job, model, sgd(model))


@pattern(("requires_grad of 0.weight",))
def unfrozen_later(job):
    model = net()
    model[0].requires_grad_(False)
    job.attach(model, sgd(model))

    def body(n, x, y):
        model[0].requires_grad_(job.committed_step >= 5)
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body)


@pattern()
def distributed_sampler(job):
    model, data = net(), Points()
    sampler = DistributedSampler(data, num_replicas=1, rank=0)
    loader = DataLoader(data, MICRO, sampler=sampler)
    job.attach(model, sgd(model))
    for epoch in job.epochs(loader):
        sampler.set_epoch(epoch)
        for x, y in job.batches(loader):
            if GATE is not None:
                GATE.wait(job.committed_step + 1, lambda: job.step().cancelled)
            job.backward(F.cross_entropy(model(x), y))
    assert job.done()
    return state(model)


@pattern()
def negatives_in_the_micro_batch(job):
    """A contrastive loss sees a micro-batch, whoever computes it."""
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        a, b = F.normalize(model(x), dim=1), F.normalize(model(x + 0.1 * torch.randn_like(x)), dim=1)
        job.backward(F.cross_entropy(a @ b.T / 0.1, torch.arange(len(x))))

    loop(job, model, body)
    return state(model)


@pattern()
def seeds_of_processes_that_load(job):
    import numpy

    class Noisy(Points):
        def __getitem__(self, i):
            x, y = super().__getitem__(i)
            return x * float(numpy.random.rand()) + random.random(), y

    def seed(number):
        numpy.random.seed(torch.initial_seed() % 2**32)
        random.seed(torch.initial_seed())

    model = net()
    loader = DataLoader(Noisy(), MICRO, shuffle=True, num_workers=1, worker_init_fn=seed, generator=torch.Generator().manual_seed(0))
    return simple(job, model, sgd(model), dataset=loader)


def begin(**words):
    return tidemill.torch.init(**{**dict(steps=STEPS, batch=BATCH, micro_batch=MICRO, seed=5, determinism="bitwise"), **words})


def main():
    global GATE
    from train_small import Gate
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("out")
    parser.add_argument("--gate")
    words = parser.parse_args()
    GATE = Gate(words.gate)
    job = begin()
    job.after_step(lambda step, loss: print(f"applied {step} of {job.world_size} loss {loss}", flush=True))
    result = PATTERNS[words.name][1](job)
    print(f"followed {job._state.follow.advanced}", flush=True)
    if job.has_result:
        torch.save(result, f"{words.out}-{os.environ.get('TIDEMILL_INSTANCE_ID', '0')}")


if __name__ == "__main__":
    main()

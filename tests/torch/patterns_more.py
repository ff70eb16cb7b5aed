"""More of what training scripts do, as patterns.py has it: by whole kinds of training."""
import copy
import os
import random
import time

import numpy
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, random_split

from patterns import BATCH, MICRO, STEPS, TWICE, Points, Transformed, loop, net, pattern, sgd, simple, state


# ---- several networks ----

class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator, self.critic = net(), nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


@pattern(("another optimizer", "parameter groups"))
def gan_of_two_optimizers(job):
    model = Gan()
    first, second = (torch.optim.Adam(part.parameters(), 0.01, betas=(0.5, 0.999)) for part in (model.generator, model.critic))
    job.attach(nn.ModuleList([model.critic]), second)

    def body(n, x, y):
        fake = model.generator(x)
        job.backward(F.softplus(model.critic(fake.detach())).mean())
        F.softplus(-model.critic(fake)).mean().backward(inputs=list(model.generator.parameters()))
        first.step()

    loop(job, model, body)


@pattern()
def gan_of_one_optimizer(job):
    """As the refusal says: two groups, one loss. The generator's part goes through the critic's weights as they are."""
    model = Gan()
    groups = [{"params": model.generator.parameters(), "lr": 0.01}, {"params": model.critic.parameters(), "lr": 0.02}]
    job.attach(model, torch.optim.Adam(groups, betas=(0.5, 0.999)))

    def body(n, x, y):
        fake = model.generator(torch.randn_like(x))
        frozen = {name: p.detach() for name, p in model.critic.named_parameters()}
        critic = F.softplus(model.critic(fake.detach())).mean() + F.softplus(-model.critic(F.one_hot(y, 3).float())).mean()
        job.backward(critic + F.softplus(-functional_call(model.critic, frozen, (fake,))).mean())

    loop(job, model, body)
    return state(model)


@pattern(("the optimizer has 1 parameter(s) that the model does not have",))
def weights_of_losses_that_are_learned(job):
    """By uncertainty, as parameters beside the model."""
    model, logs = net(), nn.Parameter(torch.zeros(2))
    return simple(job, model, torch.optim.Adam([*model.parameters(), logs], 0.01))


@pattern()
def parameters_left_out_of_the_optimizer(job):
    model = net()
    first = model[0].weight.detach().clone()
    out = simple(job, model, torch.optim.SGD(model[2].parameters(), 0.1))
    assert torch.equal(first, model[0].weight.detach())
    return out


class Lora(nn.Module):
    """An adapter by hand."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + 2.0 * self.up(self.down(x))


@pattern()
def adapters_by_hand(job):
    model = net()
    model[0], model[2] = Lora(model[0]), Lora(model[2])
    return simple(job, model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 0.01))


@pattern(("0.weight was changed outside", "job.on_commit"))
def adapters_merged_for_a_look(job):
    model = net()

    def merge(step, loss):
        with torch.no_grad():
            model[0].weight.add_(0.01)

    job.after_step(merge)
    return simple(job, model, sgd(model))


@pattern(("the buffer queue", "cannot merge"))
def queue_in_a_buffer(job):
    """MoCo's, which its forward pass fills."""
    class Queue(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net()
            self.register_buffer("queue", F.normalize(torch.randn(16, 3), dim=1))
            self.register_buffer("at", torch.zeros(1, dtype=torch.long))

        def forward(self, x):
            q = F.normalize(self.inner(x), dim=1)
            logits = q @ self.queue.clone().T
            at = int(self.at)
            self.queue[at: at + len(x)] = q.detach()
            self.at[0] = (at + len(x)) % 16
            return logits

    model = Queue()
    job.attach(model, sgd(model))
    loop(job, model, lambda n, x, y: job.backward(F.cross_entropy(model(x) / 0.1, y)))


# ---- two passes a step, and other rules ----

@pattern(("twice for one micro-batch",))
def sharpness_by_hand(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        moved = [0.05 * p.grad for p in model.parameters()]
        with torch.no_grad():
            for p, e in zip(model.parameters(), moved):
                p.add_(e)
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body)


@pattern()
def sharpness_by_functions(job):
    """The same without touching the weights."""
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        named = dict(model.named_parameters())
        grads = torch.autograd.grad(F.cross_entropy(model(x), y), list(named.values()))
        size = torch.sqrt(sum(g.square().sum() for g in grads))
        moved = {name: p + 0.05 * g / size for (name, p), g in zip(named.items(), grads)}
        job.backward(F.cross_entropy(functional_call(model, moved, (x,)), y))

    loop(job, model, body)
    return state(model)


@pattern()
def adversarial_samples(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        x = x + 0.1 * torch.empty_like(x).uniform_(-1, 1)
        for _ in range(2):
            x = x.detach().requires_grad_(True)
            x = x + 0.05 * torch.autograd.grad(F.cross_entropy(model(x), y), x)[0].sign()
        job.backward(F.cross_entropy(model(x.detach()), y))

    loop(job, model, body)
    return state(model)


@pattern()
def meta_learning(job):
    """An inner step by functions, as MAML has it."""
    model = net()
    job.attach(model, torch.optim.Adam(model.parameters(), 0.01))

    def body(n, x, y):
        named = dict(model.named_parameters())
        inner = torch.autograd.grad(F.cross_entropy(model(x), y), list(named.values()), create_graph=True)
        fast = {name: p - 0.1 * g for (name, p), g in zip(named.items(), inner)}
        job.backward(F.cross_entropy(functional_call(model, fast, (x + 0.1,)), y))

    loop(job, model, body)
    return state(model)


@pattern(("clips the gradient of the whole batch", "all parameters"))
def clip_of_a_part(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        nn.utils.clip_grad_norm_(model[0].parameters(), 0.1)

    loop(job, model, body)


@pattern(("'lr'", "between two steps"))
def rate_in_after_step(job):
    model = net()
    optimizer = sgd(model)
    job.after_step(lambda step, loss: optimizer.param_groups[0].update(lr=0.1 / step))
    return simple(job, model, optimizer)


@pattern(("requires_grad of 0.weight",))
def frozen_midway(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        if job.committed_step == 4:
            model[0].requires_grad_(False)
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body)


@pattern()
def batch_statistics_of_an_average(job):
    """After the training, as the tutorial of SWA has it."""
    model = net(nn.BatchNorm1d(12))
    average, data = AveragedModel(model), Points()
    job.attach(model, sgd(model), state={"swa": average})

    def body(n, x, y):
        job.backward(F.cross_entropy(model(x), y))
        if job.committed_step >= 6:
            average.update_parameters(model)

    loop(job, model, body, data)
    update_bn(DataLoader(data, MICRO), average)
    return state(model, **{f"swa {k}": v.clone() for k, v in average.state_dict().items()})


# ---- what changes with time ----

@pattern(("'tau' of the model", "job.on_commit", "job.committed_step"))
def temperature_set_on_commit(job):
    class Soft(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.tau = net(), 1.0

        def forward(self, x):
            return self.inner(x) / self.tau

    model = Soft()
    job.on_commit(lambda step, loss: setattr(model, "tau", max(0.5, 1.0 - 0.05 * step)))
    return simple(job, model, sgd(model))


@pattern()
def temperature_of_what_is_attached(job):
    """As the refusal says."""
    class Anneals:
        def __init__(self, module):
            self.module = module

        def step(self, at):
            self.module.p = max(0.05, 0.4 - 0.03 * at)

        def state_dict(self):
            return {"p": self.module.p}

        def load_state_dict(self, told):
            self.module.p = told["p"]

    model = net(nn.Dropout(0.4))
    anneals = Anneals(model[2])
    job.on_commit(lambda step, loss: anneals.step(step))
    return simple(job, model, sgd(model), state={"anneals": anneals})


@pattern(("'p' of the module 2", "job.after_step"))
def dropout_set_in_after_step(job):
    model = net(nn.Dropout(0.0))
    job.after_step(lambda step, loss: setattr(model[2], "p", 0.02 * step))
    return simple(job, model, sgd(model))


@pattern()
def sizes_kept_by_an_evaluation(job):
    """A module notes the longest input that it has seen, which changes nothing."""
    class Notes(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.longest = net(), 0

        def forward(self, x):
            self.longest = max(self.longest, len(x))
            return self.inner(x)

    model = Notes()

    def evaluate(step, loss):
        with torch.no_grad():
            model(torch.zeros(5 + step, 6))

    job.after_step(evaluate)
    return simple(job, model, sgd(model))


@pattern()
def teacher_forcing_by_step(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        forced = random.random() < 1.0 - job.committed_step / STEPS
        job.backward(F.cross_entropy(model(x if forced else model(x).repeat(1, 2).detach()), y))

    loop(job, model, body)
    return state(model)


@pattern()
def layers_dropped_at_random(job):
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.layers, self.last = nn.Linear(6, 8), nn.ModuleList(nn.Linear(8, 8) for _ in range(4)), nn.Linear(8, 3)

        def forward(self, x):
            x = torch.tanh(self.first(x))
            for layer in self.layers:
                if random.random() > 0.5:
                    x = x + torch.tanh(layer(x))
            return self.last(x)

    model = Dropped()
    return simple(job, model, torch.optim.AdamW(model.parameters(), 0.01))


@pattern(TWICE)
def seeded_by_the_time_in_the_loop(job):
    model = net(nn.Dropout(0.4))
    job.attach(model, sgd(model))

    def body(n, x, y):
        torch.manual_seed(time.time_ns() % 2**40)
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body)


@pattern(TWICE)
def cutmix_with_a_generator_of_each_call(job):
    model = net()
    job.attach(model, sgd(model))

    def body(n, x, y):
        share = numpy.random.default_rng().beta(1.0, 1.0)
        job.backward(F.cross_entropy(model(share * x + (1 - share) * x.flip(0)), y))

    loop(job, model, body)


@pattern()
def meters_of_the_loop(job):
    """Lists and means that are only printed."""
    model, losses, right = net(), [], [0, 0]
    job.attach(model, sgd(model))

    def body(n, x, y):
        out = model(x)
        loss = F.cross_entropy(out, y)
        job.backward(loss)
        losses.append(loss.item())
        right[0], right[1] = right[0] + int((out.argmax(1) == y).sum()), right[1] + len(y)
        if n % 10 == 0:
            assert sum(losses) / len(losses) < 10 and right[0] / right[1] <= 1

    loop(job, model, body)
    return state(model)


# ---- data of one's own ----

@pattern(TWICE)
def replay_buffer(job):
    """Of what the loop has seen."""
    model, memory = net(), []
    job.attach(model, sgd(model))

    def body(n, x, y):
        memory.append((x, y))
        old, wanted = random.choice(memory)
        job.backward(F.cross_entropy(model(x), y) + F.cross_entropy(model(old), wanted))

    loop(job, model, body)


@pattern(TWICE)
def second_loader_in_the_loop(job):
    """Unlabelled samples, as FixMatch has them."""
    model, others = net(), iter(DataLoader(Points(0.2, count=4000), MICRO))
    job.attach(model, sgd(model))

    def body(n, x, y):
        unlabelled, _ = next(others)
        with torch.no_grad():
            wanted = model(unlabelled).argmax(1)
        job.backward(F.cross_entropy(model(x), y) + F.cross_entropy(model(unlabelled + 0.1), wanted))

    loop(job, model, body)


@pattern()
def batches_drawn_in_the_loop(job):
    """nanoGPT's get_batch: the job's data set only counts."""
    model, text = net(), torch.arange(400.0).sin()
    job.attach(model, sgd(model))

    def body(n, x, y):
        at = torch.randint(390, (MICRO,))
        x = torch.stack([text[i: i + 6] for i in at])
        job.backward(F.cross_entropy(model(x), (x[:, 0] > 0).long()))

    loop(job, model, body)
    return state(model)


class Packs:
    """Texts joined to pieces of one length; what is left goes into the next batch."""

    def __init__(self, keeps):
        self.rest, self.keeps = torch.zeros(0), keeps

    def __call__(self, rows):
        joined = torch.cat([self.rest, *(x[: 3 + y] for x, y in rows)])
        whole = joined[: len(joined) // 6 * 6]
        if self.keeps:
            self.rest = joined[len(whole):]
        return whole.view(-1, 6), (whole.view(-1, 6).sum(1) > 0).long()


PACKED = ("the collate function (Packs)", "another batch", "packed texts")


@pattern(PACKED)
def packing_that_keeps_a_rest(job):
    model = net()
    return simple(job, model, sgd(model), words={"collate": Packs(True)})


@pattern(PACKED)
def packing_that_keeps_a_rest_elsewhere(job):
    """In processes that load, which begin anew with every change."""
    model = net()
    return simple(job, model, sgd(model), dataset=DataLoader(Points(), MICRO, num_workers=1, collate_fn=Packs(True)))


@pattern()
def packing_within_a_batch(job):
    model = net()
    return simple(job, model, sgd(model), words={"collate": Packs(False)})


@pattern()
def collate_that_takes_rows_apart(job):
    """As collators of Transformers do."""
    def collate(rows):
        labels = [row.pop("label") for row in rows]
        return torch.stack([row.pop("x") for row in rows]), torch.tensor(labels)

    class Rows(Points):
        def __init__(self):
            super().__init__()
            self.rows = [dict(zip(("x", "label"), Points.__getitem__(self, i))) for i in range(40)]

        def __getitem__(self, i):
            return dict(self.rows[i])

    model = net()
    return simple(job, model, sgd(model), dataset=Rows(), words={"collate": collate})


COUNTS = ("item", "is another one when it is asked for again", "try_twice=False")


class Levels(Points):
    """Becomes harder with every item that is asked for."""

    asked = 0

    def __getitem__(self, i):
        self.asked += 1
        x, y = super().__getitem__(i)
        return x * (1 + 0.01 * self.asked), y


@pattern(COUNTS)
def data_set_that_counts(job):
    model = net()
    return simple(job, model, sgd(model), dataset=Levels())


@pattern(COUNTS)
def data_set_that_counts_elsewhere(job):
    model = net()
    return simple(job, model, sgd(model), dataset=DataLoader(Levels(), MICRO, num_workers=1))


@pattern(COUNTS)
def data_set_with_a_generator_of_each_item(job):
    model = net()
    return simple(job, model, sgd(model), dataset=DataLoader(Transformed(Points(), lambda x: x + numpy.random.default_rng().normal()), MICRO, num_workers=1))


class Easy(torch.utils.data.Sampler):
    """A curriculum: easy items first, more of them with every epoch."""

    def __init__(self):
        self.epoch = 0

    def __len__(self):
        return 24

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter([int(i) % min(40, 10 + 10 * self.epoch) for i in torch.randperm(24)])


@pattern()
def curriculum_by_epoch(job):
    model = net()
    return simple(job, model, sgd(model), dataset=DataLoader(Points(), MICRO, sampler=Easy()))


@pattern()
def split_after_init(job):
    """At random, by the job's seed."""
    model = net()
    train, test = random_split(Points(), [30, 10])
    out = simple(job, model, sgd(model), dataset=train)
    assert len(test) == 10
    return {**out, "split": torch.tensor(train.indices)}


def in_epochs(job, first, later):
    model = net()
    job.attach(model, sgd(model))
    for epoch in job.epochs(first):
        for x, y in job.batches(later if epoch else first):
            job.backward(F.cross_entropy(model(x), y))
    return state(model)


@pattern(("given other data", "job.batches"))
def batch_size_of_a_later_epoch(job):
    """The first loader's would have gone on."""
    data = Points()
    return in_epochs(job, DataLoader(data, MICRO), DataLoader(data, 2 * MICRO))


@pattern(("given other data", "job.batches"))
def collate_of_a_later_epoch(job):
    data = Points()
    return in_epochs(job, DataLoader(data, MICRO), DataLoader(data, MICRO, collate_fn=Packs(False)))


@pattern(("left early", "job.stop()"))
def early_stopping_by_break(job):
    model, bad = net(), 0
    job.attach(model, sgd(model))
    for x, y in job.batches(Points()):
        job.backward(F.cross_entropy(model(x), y))
        bad += job.committed_step > 3
        if bad > 5:
            break
    job.done()


@pattern()
def checkpoints_of_weights_of_ones_own(job):
    """Written now and then; a process that comes loads the weights, and the job's own take their place."""
    file = f"/tmp/tidemill-pattern-{os.getpid()}.pt"
    model = net()
    if job._session is None and os.path.exists(file):
        model.load_state_dict(torch.load(file, weights_only=True))
    job.after_step(lambda step, loss: torch.save(model.state_dict(), file) if step % 5 == 0 else None)
    try:
        out = simple(job, model, sgd(model))
    finally:
        if job.committed_step == STEPS and os.path.exists(file):
            os.remove(file)
    return out


@pattern()
def warmup_by_a_class_of_ones_own(job):
    """A schedule that is no torch schedule, by the job's step."""
    class Noam:
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def step(self, at):
            for group in self.optimizer.param_groups:
                group["lr"] = 0.1 * min((at + 1) ** -0.5, (at + 1) * 4 ** -1.5)

    model = net()
    optimizer = sgd(model)
    schedule = Noam(optimizer)
    job.attach(model, optimizer)

    def body(n, x, y):
        schedule.step(job.committed_step)
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body)
    return state(model)


@pattern()
def mean_teacher_of_two_students(job):
    """A teacher attached, and a copy that is only read."""
    model = net()
    teacher, first = copy.deepcopy(model).requires_grad_(False), copy.deepcopy(model).requires_grad_(False)

    @job.on_commit
    def follow(step, loss):
        with torch.no_grad():
            for p, q in zip(model.parameters(), teacher.parameters()):
                q.lerp_(p, min(0.5, 1 / step))

    job.attach(model, sgd(model), state={"teacher": teacher})

    def body(n, x, y):
        with torch.no_grad():
            wanted = teacher(x + 0.1 * torch.randn_like(x)) + first(x)
        job.backward(F.cross_entropy(model(x), y) + 0.1 * F.mse_loss(model(x), wanted))

    loop(job, model, body)
    return state(model, **{f"teacher {k}": v.clone() for k, v in teacher.state_dict().items()})


@pattern()
def two_schedules_chained(job):
    model = net()
    optimizer = sgd(model, momentum=0.9, nesterov=True)
    parts = [lr_scheduler.LinearLR(optimizer, 0.2, total_iters=3), lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4)]
    return simple(job, model, optimizer, lr_scheduler.ChainedScheduler(parts))


@pattern()
def accumulation_with_a_context(job):
    """What stood for no_sync."""
    import contextlib
    model = net()
    optimizer = sgd(model)
    job.attach(model, optimizer)

    def body(n, x, y):
        with contextlib.nullcontext() if (n + 1) % (BATCH // MICRO) == 0 else torch.set_grad_enabled(True):
            job.backward(F.cross_entropy(model(x), y))
        if (n + 1) % (BATCH // MICRO) == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    loop(job, model, body)
    return state(model)

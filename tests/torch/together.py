"""What training scripts do that goes wrong only where there are two workers: PATTERNS has the verdict (as in patterns.py), after how
many steps the second worker joins, and the code."""
import os
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, IterableDataset, WeightedRandomSampler

from patterns import Counters, Points, Shadow, loop, net, sgd, simple, state

PATTERNS = {}


def pattern(verdict="kept", joins=0):
    """Registers a script."""
    def take(function):
        PATTERNS[function.__name__] = (verdict, joins, function)
        return function
    return take


# ---- what a function given to on_commit does on one worker alone ----

APART = ("the committed state of this worker is another one", "job.is_main")


@pattern()
def plain_loop_of_two(job):
    model = net(nn.BatchNorm1d(12), nn.Dropout(0.2))
    optimizer = sgd(model, momentum=0.9)
    return simple(job, model, optimizer, lr_scheduler.StepLR(optimizer, 3, 0.7), clip=1.0)


@pattern()
def everything_on_commit_everywhere(job):
    model = net()
    optimizer, ema, kept = sgd(model, momentum=0.9), Shadow(model), Counters()

    @job.on_commit
    def change(step, loss):
        optimizer.param_groups[0]["lr"] = 0.1 / step
        optimizer.param_groups[0]["dampening"] = 0.1
        ema.update(model)
        kept.best = min(kept.best, loss)
        with torch.no_grad():
            model[0].weight.clamp_(-0.3, 0.3)
        if step % 4 == 0:
            optimizer.state[model[2].weight]["momentum_buffer"].zero_()

    return simple(job, model, optimizer, state={"ema": ema, "kept": kept})


@pattern()
def everything_on_commit_with_one_that_joins(job):
    return everything_on_commit_everywhere(job)


PATTERNS["everything_on_commit_with_one_that_joins"] = ("kept", 5, everything_on_commit_everywhere)


@pattern(("'lr' of the optimizer's parameter groups", *APART))
def rate_on_commit_of_main(job):
    model = net()
    optimizer = sgd(model)

    @job.on_commit
    def lower(step, loss):
        if job.is_main and step == 4:
            optimizer.param_groups[0]["lr"] *= 0.5

    return simple(job, model, optimizer)


@pattern(("the optimizer's parameter groups", *APART))
def new_setting_on_commit_of_main(job):
    model = net()
    optimizer = sgd(model)
    job.on_commit(lambda step, loss: optimizer.param_groups[0].update(warm=step) if job.is_main else None)
    return simple(job, model, optimizer)


@pattern(("attach(state=...)", "plateau", *APART))
def plateau_by_what_each_has_measured(job):
    """Of its own micro-batches: what would be right is the loss that on_commit is given."""
    model, seen = net(), [0.0]
    optimizer = sgd(model)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5, threshold=0.05)
    job.on_commit(lambda step, loss: plateau.step(seen[0]))
    job.attach(model, optimizer, state={"plateau": plateau})

    def body(n, x, y):
        loss = F.cross_entropy(model(x), y)
        seen[0] = float(loss.detach())
        job.backward(loss)

    loop(job, model, body)
    return state(model)


@pattern(("attach(state=...)", "ema", *APART))
def average_on_commit_of_main(job):
    """As scripts have it that save from rank 0."""
    model = net()
    ema = Shadow(model)
    job.on_commit(lambda step, loss: ema.update(model) if job.is_main else None)
    return simple(job, model, sgd(model), state={"ema": ema})


@pattern(("attach(state=...)", *APART))
def counters_on_commit_of_main(job):
    model, kept = net(), Counters()

    @job.on_commit
    def count(step, loss):
        if job.is_main:
            kept.best = min(kept.best, loss)

    return simple(job, model, sgd(model), state={"kept": kept})


@pattern(("after the optimizer's step", *APART))
def clamped_on_commit_of_main(job):
    model = net()

    @job.on_commit
    def clamp(step, loss):
        if job.is_main:
            with torch.no_grad():
                model[0].weight.clamp_(-0.1, 0.1)

    return simple(job, model, sgd(model))


@pattern(("0.weight", *APART))
def noise_on_commit_by_rank(job):
    model = net()

    @job.on_commit
    def noise(step, loss):
        with torch.no_grad():
            model[0].weight.add_(0.01 * job.rank)

    return simple(job, model, sgd(model))


@pattern(("after the optimizer's step", *APART))
def momentum_reset_on_commit_of_main(job):
    model = net()
    optimizer = sgd(model, momentum=0.9)
    job.on_commit(lambda step, loss: optimizer.state[model[0].weight]["momentum_buffer"].zero_() if job.is_main and step == 3 else None)
    return simple(job, model, optimizer)


class Queue:
    """Features of the last samples."""

    def __init__(self):
        self.rows = torch.zeros(8, 3)

    def state_dict(self):
        return {"rows": self.rows}

    def load_state_dict(self, told):
        self.rows = told["rows"].clone()


@pattern(("after the optimizer's step", *APART))
def queue_of_what_each_has_computed(job):
    """MoCo's, attached and changed where it should be, but with this worker's own features."""
    model, queue, seen = net(), Queue(), []
    job.attach(model, sgd(model), state={"queue": queue})

    @job.on_commit
    def put(step, loss):
        queue.rows = torch.cat([queue.rows, *seen])[-8:]
        seen.clear()

    def body(n, x, y):
        out = model(x)
        seen.append(out.detach())
        job.backward(F.cross_entropy(out, y) + 0.01 * (out @ queue.rows.T).square().mean())

    loop(job, model, body)
    return state(model)


@pattern()
def queue_of_samples_that_all_know(job):
    """As it should be: every worker computes the same features, of samples that follow from the step."""
    model, queue, data = net(), Queue(), Points()
    job.attach(model, sgd(model), state={"queue": queue})

    @job.on_commit
    def put(step, loss):
        with torch.no_grad():
            some = torch.stack([data[(2 * step + i) % len(data)][0] for i in range(2)])
            queue.rows = torch.cat([queue.rows, model(some)])[-8:]

    def body(n, x, y):
        out = model(x)
        job.backward(F.cross_entropy(out, y) + 0.01 * (out @ queue.rows.T).square().mean())

    loop(job, model, body, data)
    return state(model, queue=queue.rows.clone())


PATTERNS["queue_with_one_that_joins"] = ("kept", 5, queue_of_samples_that_all_know)


@pattern(("another micro-batch", "job.committed_step"))
def rate_by_rank(job):
    model = net()
    optimizer = sgd(model)
    job.attach(model, optimizer)

    def body(n, x, y):
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + job.rank)
        job.backward(F.cross_entropy(model(x), y))

    loop(job, model, body)
    return state(model)


@pattern()
def best_by_a_measurement_of_each(job):
    """Every worker evaluates the same weights, on the same samples."""
    model, kept = net(), Counters()

    @job.on_commit
    def look(step, loss):
        with torch.no_grad():
            kept.best = min(kept.best, float(model(torch.ones(4, 6)).square().sum()))

    return simple(job, model, sgd(model), state={"kept": kept})


@pattern(("other modules are in training mode", "model.train()"), joins=6)
def evaluation_that_stays_before_one_joins(job):
    model = net(nn.Dropout(0.3))
    job.after_step(lambda step, loss: model.eval())
    return simple(job, model, sgd(model))


@pattern(joins=4)
def random_numbers_with_one_that_joins(job):
    """A generator in the data set, one in the loop, one of the batch."""
    draw = random.Random(0)

    class Noisy(Points):
        def __init__(self):
            super().__init__()
            self.rng = random.Random(1)

        def __getitem__(self, i):
            x, y = super().__getitem__(i)
            return x + 0.1 * self.rng.random(), y

    def collate(rows, rng=random.Random(2)):
        return torch.stack([x for x, _ in rows]) * (1 + rng.random()), torch.tensor([y for _, y in rows])

    model = net(nn.Dropout(0.2))
    job.attach(model, sgd(model))
    loop(job, model, lambda n, x, y: job.backward(F.cross_entropy(model(x * (1 + draw.random())), y)), Noisy(), collate=collate)
    return state(model)


# ---- data whose order or content is the process's own ----

OTHER = ("is another one here than on another worker", "sorted(", "PYTHONHASHSEED")


class Shuffled(Points):
    """A list of files in the order in which this process got it."""

    def __init__(self, key):
        super().__init__()
        self.files = list(range(40))
        random.Random(key).shuffle(self.files)

    def __getitem__(self, i):
        return super().__getitem__(self.files[i])


@pattern()
def shuffled_by_a_seed(job):
    model = net()
    return simple(job, model, sgd(model), dataset=Shuffled(3))


@pattern(OTHER)
def shuffled_by_the_process(job):
    """Alone it is one process."""
    model = net()
    return simple(job, model, sgd(model), dataset=Shuffled(os.getpid()))


@pattern(OTHER, joins=4)
def shuffled_by_the_process_that_joins(job):
    return shuffled_by_the_process(job)


@pattern(OTHER)
def shuffled_by_the_process_and_loaded_by_others(job):
    model = net()
    return simple(job, model, sgd(model), dataset=DataLoader(Shuffled(os.getpid()), 2, shuffle=True, num_workers=1))


@pattern(joins=4)
def augmented_and_loaded_by_others(job):
    model = net()
    return simple(job, model, sgd(model), dataset=DataLoader(Points(0.1), 2, shuffle=True, num_workers=1))


@pattern(OTHER)
def words_numbered_by_a_set(job):
    """A vocabulary in the order of a set: numbers are the process's own."""
    words = sorted(f"word {i}" for i in range(30))
    random.Random(os.getpid()).shuffle(words)  # as hash() does from process to process; those of a test have the same
    vocabulary = {word: number for number, word in enumerate(words)}

    class Words(Points):
        def __getitem__(self, i):
            return torch.tensor([vocabulary[f"word {(i + j) % 30}"] for j in range(6)]).float() / 30, i % 3

    model = net()
    return simple(job, model, sgd(model), dataset=Words())


@pattern(("the sampler gives another order", "set_epoch"))
def weights_of_a_sampler_by_the_process(job):
    draw = random.Random(os.getpid())
    sampler = WeightedRandomSampler([draw.random() for _ in range(40)], 40)
    model = net()
    return simple(job, model, sgd(model), words={"sampler": sampler})


class Cached(Points):
    """Keeps what it has drawn."""

    def __init__(self):
        super().__init__(0.3, 8)
        self.kept = {}

    def __getitem__(self, i):
        if i not in self.kept:
            self.kept[i] = super().__getitem__(i)
        return self.kept[i]


@pattern(OTHER, joins=4)
def cache_of_augmented_samples(job):
    model = net()
    return simple(job, model, sgd(model), dataset=Cached())


@pattern(OTHER, joins=4)
def level_of_a_data_set_by_on_commit(job):
    """A curriculum that a worker which joins knows nothing of."""
    data, model = Points(), net()
    job.on_commit(lambda step, loss: setattr(data, "noise", 0.05 * step))
    return simple(job, model, sgd(model), dataset=data)


class Stream(IterableDataset):
    def __init__(self, key):
        self.key = key

    def __iter__(self):
        order = list(range(30))
        random.Random(self.key).shuffle(order)
        yield from (Points()[i] for i in order)


@pattern(joins=3)
def stream_shuffled_by_a_seed(job):
    model = net()
    return simple(job, model, sgd(model), dataset=Stream(1))


@pattern(OTHER)
def stream_shuffled_by_the_process(job):
    model = net()
    return simple(job, model, sgd(model), dataset=Stream(os.getpid()))


@pattern(OTHER)
def stream_of_batches_shuffled_by_the_process(job):
    model = net()
    return simple(job, model, sgd(model), dataset=DataLoader(Stream(os.getpid()), 2, num_workers=1))

"""Patterns of training scripts (patterns.py): each is refused by its name, or ends with the same weights however often it was
given up, killed and begun anew."""
import copy
import ctypes
import json
import random

import torch

import patterns
import patterns_more  # noqa: F401  # whose patterns are there, too
from cluster import ROOT, Cluster, Trouble, python
from tidemill.errors import UsageError
from tidemill.session import Alone, Work
from tidemill.torch import copies, logs
from tidemill.torch.job import Job

SCRIPT = str(ROOT / "tests" / "torch" / "patterns.py")


class Killed(BaseException):
    """This process is gone; what it had committed is in `layers`."""

    def __init__(self, step, layers):
        self.step, self.layers = step, layers


class Unsteady(Alone):
    """One worker that is told to give steps up, and is killed: by a seed."""

    def __init__(self, engine, steps, layers, micro_batches, plan, saved):
        super().__init__(engine, steps, layers, micro_batches, saved.step if saved else 1)
        self._engine, self._plan, self._saved, self._count = engine, plan, saved, layers
        self._asked, self._generation = 0, 1

    def next(self):
        if self._saved is not None:
            for layer, data in enumerate(self._saved.layers):
                room = ctypes.create_string_buffer(data, len(data))
                self._engine.write_layer(layer, ctypes.addressof(room), len(data))
            self._saved = None
        if self._step in self._plan["kills"] and self._norm is None:
            self._plan["kills"].remove(self._step)
            raise Killed(self._step, [self._bytes(layer) for layer in range(self._count)])
        work = super().next()
        self._asked = 0
        return work if work is None else Work(**{**work.__dict__, "generation": self._generation})

    def _bytes(self, layer):
        room = ctypes.create_string_buffer(self._engine.layer_bytes(layer))
        self._engine.read_layer(layer, ctypes.addressof(room), len(room))
        return room.raw

    def cancelled(self):
        self._asked += 1
        if self._plan["given_up"].get(self._step) != self._asked:
            return False
        del self._plan["given_up"][self._step]
        self._generation += 1
        return True


def train(function, plan=None):
    """What the script returns; through kills where there is a plan for them."""
    saved = None
    kept, looks = Job._join, copies._LOOKS
    while True:
        def join(job, engine, digest, layers, device):
            job._session = Unsteady(engine, job.steps, layers, job.micro_batches, plan, saved)

        try:
            if plan is not None:
                Job._join, copies._LOOKS = join, ()  # what looks for copies of the model takes its time, and has looked before
            return function(patterns.begin())
        except Killed as gone:
            saved = gone
        finally:
            Job._join, copies._LOOKS = kept, looks
            torch.use_deterministic_algorithms(False)


def plan_of(seed, name=""):
    draw = random.Random(seed)
    # A loop that was left cannot compute its last step again: that worker starts over, which there is none of here.
    steps = range(1, patterns.STEPS + 1 - name.startswith("break_"))
    return {"kills": set(draw.sample(steps, 3)), "given_up": {s: draw.randint(1, 4) for s in draw.sample(steps, 3)}}


def compare(name, alone, other):
    assert sorted(alone) == sorted(other), name
    for key, value in alone.items():
        if not torch.equal(value, other[key]):
            raise Trouble(f"{name}: {key} is another after kills")


def runnable(name):
    if name == "prepared_by_accelerate":
        try:
            import accelerate  # noqa: F401
        except ImportError:
            print("skipped: the pattern prepared_by_accelerate (make venv)")
            return False
    return True


SHORT = ("rate_by_step", "clip_in_the_loop", "float16_with_a_scaler", "averaged_model", "average_of_ones_own",
         "counters_and_the_best_loss", "plateau_on_commit", "iterable_data_set", "loop_over_epochs", "batch_norm",
         "break_in_the_last_step", "mean_over_counted_items", "stream_with_a_collate_that_draws", "stream_of_batches",
         "frozen_with_an_old_gradient", "schedule_where_the_script_accumulates", "stream_split_by_node",
         "sampler_with_random_numbers_of_its_own", "frozen_statistics_by_step")


def test_patterns(build, folder):
    """In this process, with three kills and three steps given up each: a few that are kept, and all that are refused."""
    assert len(patterns.PATTERNS) >= 40
    try_all([name for name, (verdict, _) in patterns.PATTERNS.items() if verdict != "kept" or name in SHORT])


def test_patterns_all(build, folder):
    """The same for all of them."""
    try_all(list(patterns.PATTERNS))


def try_all(names):
    wrong = []
    for number, (name, (verdict, function)) in enumerate(patterns.PATTERNS.items()):
        if name not in names or not runnable(name):
            continue
        try:
            if verdict == "kept":
                compare(name, train(function), train(function, plan_of(number, name)))
            else:
                refusal(name, verdict, function)
        except Exception as error:  # noqa: BLE001
            wrong.append(f"{name}: {type(error).__name__}: {error}")
    if wrong:
        raise Trouble("\n".join(wrong))


def refusal(name, verdict, function):
    try:
        train(function)
    except UsageError as error:
        missing = [part for part in verdict if part not in str(error)]
        assert not missing, f"{name}: {missing} not in: {error}"
        return
    raise Trouble(f"{name} was not refused")


def test_patterns_are_their_plain_loops(build, folder):
    """A loop of plain PyTorch over the same samples ends with the same weights but for rounding: a translation changes nothing
    that the script meant."""
    from torch import nn
    from torch.nn import functional as F

    from tidemill import samples

    def plain(make, each=lambda *_: None, clip=None, after=lambda *_: None):
        patterns.begin()
        model, optimizer = make()
        data = patterns.Points()
        for step in range(1, patterns.STEPS + 1):
            optimizer.zero_grad()
            each(step, optimizer)
            for number in range(4):
                rows = [data[i] for i in samples.micro_batch_items(5, len(data), patterns.BATCH, patterns.MICRO, step, number)]
                x, y = torch.stack([r[0] for r in rows]), torch.tensor([r[1] for r in rows])
                (F.cross_entropy(model(x), y) / 4).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            after(step, model, optimizer)
        return model.state_dict()

    def make():
        model = patterns.net()
        return model, patterns.sgd(model)

    def by_step(step, optimizer):
        optimizer.param_groups[0]["lr"] = 0.1 * step / patterns.STEPS

    averages = []

    def average(step, model, optimizer):
        if step == 1:
            averages.append(patterns.Shadow(first[0]))
        averages[0].update(model)

    first = []

    def make_and_keep():
        model, optimizer = make()
        first.append(copy.deepcopy(model))
        return model, optimizer

    rows = {"rate_by_step": plain(make, by_step), "clip_in_the_loop": plain(make, clip=0.1), "plain_loop": plain(make),
            "rate_times_a_factor": plain(make, lambda step, o: o.param_groups[0].update(lr=0.1 * 0.9**step)),
            "divided_and_scaled": plain(make), "average_of_ones_own": plain(make_and_keep, after=average)}
    for name, expected in rows.items():
        got = train(patterns.PATTERNS[name][1])
        for key, value in expected.items():
            torch.testing.assert_close(got[key], value, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name} {key}: {text}")
    got = train(patterns.PATTERNS["average_of_ones_own"][1])
    for key, value in averages[0].shadow.items():
        torch.testing.assert_close(got[f"ema {key}"], value, rtol=1e-4, atol=1e-5)


def test_log_once(build, folder):
    """Every committed step is logged once and alike; what a job has once is opened by every process that is main, before its
    first step."""
    opened = []

    def logged(path):
        def script(job):
            job.on_main(lambda: opened.append(job.committed_step))
            job.log(path, twice=lambda: 2 * job.committed_step)
            return patterns.plain_loop(job)
        return script

    train(logged(folder / "alone"))
    assert opened == [0]
    train(logged(folder / "killed"), {"kills": {3, 8}, "given_up": {5: 2}})
    assert opened == [0, 0, 2, 7], opened
    rows = [[json.loads(line) for line in (folder / name).read_text().splitlines()] for name in ("alone", "killed")]
    assert [row["step"] for row in rows[1]] == list(range(1, patterns.STEPS + 1))
    assert [(r["loss"], r["twice"]) for r in rows[0]] == [(r["loss"], r["twice"]) for r in rows[1]]
    train(logged(folder / "alone"))  # another run, into the file of the first
    again = [json.loads(line) for line in (folder / "alone").read_text().splitlines()]
    assert again == rows[0] and len((folder / "alone.before").read_text().splitlines()) == patterns.STEPS
    with open(folder / "killed", "a") as file:
        file.write('{"step": 15, "lo')  # torn by a kill
    assert logs.last_step(folder / "killed") == patterns.STEPS
    log = logs.StepLog(folder / "killed")
    for step in (13, 14, 15, 16):  # another worker, which becomes main with step 16, and has seen what the first did not write
        log.note({"step": step}, step == 16)
    steps = [json.loads(line)["step"] for line in (folder / "killed").read_text().splitlines()]
    assert steps == list(range(1, 17)), steps


def test_data_changed_between_epochs(build, folder):
    """Processes that load have the data set as the script has it in their epoch."""
    class Marked(patterns.Points):
        epoch = 0

        def __getitem__(self, i):
            return torch.full((6,), float(self.epoch)), 0

    data, model, seen = Marked(count=16), patterns.net(), set()
    job = patterns.begin()
    job.attach(model, patterns.sgd(model))
    for epoch in job.epochs(data):
        data.epoch = epoch
        for x, y in job.batches(data, workers=1):
            seen.add((epoch, float(x[0, 0])))
            job.backward(torch.nn.functional.cross_entropy(model(x), y))
        if epoch == 2:
            break
    torch.use_deterministic_algorithms(False)
    assert seen == {(e, float(e)) for e in range(3)}, seen


def test_unused_parameters(build, folder):
    """A parameter without a gradient in a step stays as it is, weight decay or not, as in a single process; with kills, too."""
    class TwoHeads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.never, self.at_times = patterns.net(), torch.nn.Linear(6, 3), torch.nn.Linear(6, 3)

        def forward(self, x, both):
            return self.body(x) + self.at_times(x) if both else self.body(x)

    def script(job):
        model, moved = TwoHeads(), []
        first = patterns.state(model)
        job.attach(model, torch.optim.AdamW(model.parameters(), 0.1, weight_decay=0.1), clip=1.0)
        job.after_step(lambda step, loss: moved.append((step, model.at_times.weight.detach().clone())))

        def body(n, x, y):
            # in every third step, for one of the micro-batches
            both = job.step().number % 3 == 0 and job.step().micro_batch == 1
            job.backward(torch.nn.functional.cross_entropy(model(x, both), y))

        patterns.loop(job, model, body)
        assert torch.equal(first["never.weight"], model.never.weight)
        for (_, before), (step, after) in zip(moved, moved[1:]):
            assert torch.equal(before, after) == (step % 3 != 0), step
        return patterns.state(model)

    compare("unused", train(script), train(script, plan_of(3)))
    fast = lambda _: script(patterns.begin(determinism="fast"))  # noqa: E731
    train(fast)


def test_data_sets_that_differ(build, folder):
    """Workers that have other numbers of items (a share by rank, a file that is not whole) find out with the first step."""
    from tidemill.torch import job as parts

    class Two(parts.Group):
        def all_reduce(self, tensor, *words):
            if tensor is self.job._table:
                self.job._alike[:3] += torch.tensor([1.0, theirs, theirs**2], dtype=torch.float64)  # a second worker's
            return super().all_reduce(tensor, *words)

    def meet(job, *_):
        group = Two(0, 1, job._session.cancelled)
        group.job, group.size = job, 2
        return group

    kept = Job._meet
    try:
        Job._meet = meet
        for theirs, told in ((40.0, None), (39.0, "the data set has 40 items here")):
            try:
                train(patterns.plain_loop)
            except UsageError as error:
                assert told is not None and told in str(error), error
            else:
                assert told is None
    finally:
        Job._meet = kept


def test_start_from_a_stopped_job(build, folder):
    """A checkpoint of a job that has stopped early: another begins from it, and trains."""
    def first(job):
        job.on_commit(lambda step, loss: job.stop() if step == 3 else None)
        patterns.plain_loop(job)
        job.save(folder / "saved")

    def second(job):
        model = patterns.net()
        job.attach(model, patterns.sgd(model), start=folder / "saved")
        before = patterns.state(model)
        patterns.loop(job, model, lambda n, x, y: job.backward(torch.nn.functional.cross_entropy(model(x), y)))
        assert job.committed_step == patterns.STEPS
        return before, patterns.state(model)

    train(first)
    before, after = train(second)
    assert not any(torch.equal(before[k], after[k]) for k in before)
    notes = json.loads((folder / "saved" / "tidemill.json").read_text())
    del notes["shared"]["state"]  # as an older version wrote it
    (folder / "saved" / "tidemill.json").write_text(json.dumps(notes))
    train(second)


def through_a_cluster(build, folder, name):
    """Two workers, one is killed and comes back, the other is lost with its agent."""
    words = [python(), SCRIPT, name, str(folder / "out"), "--gate", str(folder / "cluster" / "gate")]
    with Cluster(build, folder / "cluster", words, patterns.STEPS, micro_batches=4,
                 variables={"TIDEMILL_DETERMINISM": "bitwise"}) as c:
        c.start_agent(1)
        c.start_agent(2)
        c.await_step(3, 2)
        c.kill_worker(1)
        c.await_step(c.newest()[0] + 1, 1)
        c.kill_instance(2)
        c.start_agent(3)
        c.await_end()
        c.await_(lambda: len(list(folder.glob("out-*"))) > 0, 30, "the final weights")
        compare(name, train(patterns.PATTERNS[name][1]), torch.load(next(folder.glob("out-*"))))


def test_patterns_cluster(build, folder):
    through_a_cluster(build, folder, "averaged_model")


def test_patterns_cluster_more(build, folder):
    for name in (*SHORT, "evaluation_by_one_worker", "early_stopping", "weighted_sampler"):
        if name != "averaged_model":
            through_a_cluster(build, folder / name, name)


for _test in (test_patterns_all, test_patterns_cluster_more):
    _test.slow = True

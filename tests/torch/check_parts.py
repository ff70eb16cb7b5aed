"""Parts of the package by themselves, in this process."""
import ctypes
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import IterableDataset, TensorDataset

import tidemill.torch
from tidemill import library, samples
from tidemill.errors import LibraryMissing, UsageError
from tidemill.torch import fixed_point
from tidemill.torch.job import Job
from tidemill.torch.state import ModelState

ROOT = Path(__file__).resolve().parents[2]


def refused(function, *parts: str) -> None:
    try:
        function()
    except UsageError as error:
        missing = [p for p in parts if p not in str(error)]
        assert not missing, f"{missing} not in: {error}"
        return
    raise AssertionError("nothing was refused")


def job(**words) -> Job:
    defaults = dict(steps=6, batch=8, micro_batch=2, seed=5, determinism="fast")
    return tidemill.torch.init(**{**defaults, **words})


def data(count: int = 40) -> TensorDataset:
    g = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(count, 6, generator=g), torch.randint(0, 3, (count,), generator=g))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))


def train(j: Job, model: nn.Module, dataset) -> None:
    for x, y in j.batches(dataset):
        with j.step() as step:
            step.backward(F.cross_entropy(model(x), y))


def test_samples_as_the_engine(build, folder):
    assert [samples.sample_item(3, 500, i * 97) for i in range(6)] == [204, 132, 50, 425, 252, 58]
    assert [samples.sample_item(0x1234567890ABCDEF, 1000003, (1 << 40) + i) for i in range(3)] == [3067, 701602, 768645]


def test_samples_by_the_library(build, folder):
    assert samples._library() is not None
    for seed in (0, 9, -3, 0x1234567890ABCDEF):
        for count, batch, micro_batch, step, number in ((1, 4, 2, 3, 1), (500, 24, 8, 7, 2), (1000003, 64, 16, 1 << 34, 3)):
            first = (step - 1) * batch + number * micro_batch
            assert samples.micro_batch_items(seed, count, batch, micro_batch, step, number) == [
                samples.sample_item(seed, count, first + j) for j in range(micro_batch)]
            assert samples.keys_of(seed, step, first, micro_batch, 1) == [samples.key_of(seed, step, first + j, 1)
                                                                         for j in range(micro_batch)]


def test_samples_once_an_epoch(build, folder):
    for count in (1, 2, 7, 64, 65, 500):
        for epoch in (0, 3):
            got = sorted(samples.sample_item(9, count, epoch * count + i) for i in range(count))
            assert got == list(range(count)), count


def test_scales_as_the_engine(build, folder):
    rows = [(0.3, 8, 26, 26), (1.0, 100, 21, 20), (7.5, 1, 25, 25), (1e20, 100, -45, -45), (0.0, 8, 27, 20)]
    for g, addends, best, following in rows:
        g = struct.unpack("f", struct.pack("f", g))[0]
        assert (fixed_point.best(g, addends), fixed_point.following(g, 20, addends)) == (best, following), g
    assert not fixed_point.fits(float("nan"), 20, 8) and not fixed_point.fits(1e20, 20, 8) and fixed_point.fits(1, 20, 8)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.1),
    "adam": lambda p: torch.optim.Adam(p, 0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01),
    "adamw-fused": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1, initial_accumulator_value=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "nadam": lambda p: torch.optim.NAdam(p, 0.01),
    "adamax": lambda p: torch.optim.Adamax(p, 0.01),
}


def test_as_a_plain_loop(build, folder):
    """Every optimizer ends where a plain loop with accumulation ends."""
    for name, make in OPTIMIZERS.items():
        for determinism in ("fast", "bitwise"):
            j = job(determinism=determinism)
            model = net()
            twin = net()
            twin.load_state_dict(model.state_dict())
            optimizer, plain = make(model.parameters()), make(twin.parameters())
            schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], 0.5)
            plain_schedule = torch.optim.lr_scheduler.MultiStepLR(plain, [2, 4], 0.5)
            dataset = data()
            j.attach(model, optimizer, schedule)
            train(j, model, dataset)
            assert j.done()
            for s in range(1, 7):
                plain.zero_grad()
                for m in range(4):
                    items = samples.micro_batch_items(5, len(dataset), 8, 2, s, m)
                    x, y = (torch.stack(c) for c in zip(*[dataset[i] for i in items]))
                    (F.cross_entropy(twin(x), y) / 4).backward()
                plain.step()
                plain_schedule.step()
            for a, b in zip(model.parameters(), twin.parameters()):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=f"{name} {determinism}")
            assert optimizer.param_groups[0]["lr"] == plain.param_groups[0]["lr"]
    torch.use_deterministic_algorithms(False)


def layer_bytes(state: ModelState):
    out = []
    for layer in state.layers:
        raw = bytearray(b"\xa5" * layer.size)
        layer.read(ctypes.addressof((ctypes.c_char * layer.size).from_buffer(raw)))
        out.append(bytes(raw))
    return out


def test_state_moves(build, folder):
    """Another worker that is given the layers' bytes has the same layers, and the next step is the same."""
    for name, make in OPTIMIZERS.items():
        parts = []
        for _ in range(2):
            torch.manual_seed(len(parts))
            model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 2))
            model = model.to(memory_format=torch.channels_last)
            optimizer = make(model.parameters())
            schedule = torch.optim.lr_scheduler.SequentialLR(
                optimizer, [torch.optim.lr_scheduler.ConstantLR(optimizer, 0.5, 2),
                            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)], [2])
            state = ModelState(model, optimizer, schedule, first_scale=20)
            state.cut(3)
            parts.append((model, optimizer, schedule, state))

        def go(part, count, first):
            model, optimizer, schedule, state = part
            for s in range(first, first + count):
                torch.manual_seed(s)
                optimizer.zero_grad()
                model(torch.randn(4, 1, 6, 6)).square().sum().backward()
                optimizer.step()
                schedule.step()
                state.commit(s)

        go(parts[0], 3, 1)
        before = layer_bytes(parts[0][3])
        target = parts[1][3]
        for number, raw in enumerate(before):
            buffer = (ctypes.c_char * len(raw)).from_buffer_copy(raw)
            target.write_layer(number, ctypes.addressof(buffer), len(raw))
        target.refresh(3)
        assert layer_bytes(target) == before, name
        go(parts[0], 2, 4)
        go(parts[1], 2, 4)
        assert layer_bytes(target) == layer_bytes(parts[0][3]), name


def test_refusals(build, folder):
    j = job()
    model = net()
    refused(lambda: j.attach(model, torch.optim.LBFGS(model.parameters())), "LBFGS", "closure")
    stranger = torch.optim.SGD([*model.parameters(), nn.Parameter(torch.ones(3))], 0.1)
    refused(lambda: j.attach(model, stranger), "1 parameter(s)", "(3,)")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    refused(lambda: j.attach(model, optimizer, plateau), "ReduceLROnPlateau")
    refused(lambda: next(j.batches(data())), "attach")
    refused(lambda: job(steps=0), "steps")
    refused(lambda: job(micro_batch=3), "multiple", "3")
    refused(lambda: job(determinism="exact"), "exact")

    class Stream(IterableDataset):
        def __iter__(self):
            return iter([])

    j.attach(model, optimizer)
    refused(lambda: next(j.batches(Stream())), "no items")
    refused(lambda: next(j.batches(7)), "int", "map-style")
    refused(lambda: next(j.batches(TensorDataset(torch.zeros(0, 6)))), "empty")
    refused(lambda: list(j.batches(data())), "job.backward(loss) was not called")
    refused(lambda: j.step(), "inside the loop")
    norm = nn.Sequential(nn.Linear(6, 3), nn.SyncBatchNorm(3))
    refused(lambda: job().attach(norm, torch.optim.SGD(norm.parameters(), 0.1)), "SyncBatchNorm", "1")
    norm = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, momentum=None))
    refused(lambda: job().attach(norm, torch.optim.SGD(norm.parameters(), 0.1)), "momentum")


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen += 1
        return self.inner(x)


def test_pipeline_refusals(build, folder):
    def pipeline(layers, j=None, **more):
        return tidemill.torch.Pipeline(j or job(), layers, loss=F.cross_entropy,
                                       optimizer=lambda layer: torch.optim.SGD(layer.parameters(), 0.1), **more)

    norm = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, momentum=None))
    refused(lambda: pipeline([nn.Linear(6, 6), norm]), "1 is a BatchNorm", "momentum")
    refused(lambda: pipeline([nn.Linear(6, 6), nn.Sequential(nn.SyncBatchNorm(3))]), "0 is a SyncBatchNorm")
    refused(lambda: pipeline([Counts()]).train(data()), "seen", "BatchNorm")
    refused(lambda: pipeline([]), "1 to")
    refused(lambda: pipeline([nn.Linear(6, 3)], tied=[((0, "weight"), (0, "nothing"))]), "nothing", "weight, bias")
    refused(lambda: pipeline([nn.Linear(6, 3)], job(backend="nccl")), "gloo")


def test_buffers_that_change(build, folder):
    j, model = job(), Counts()
    j.attach(model, torch.optim.SGD(model.parameters(), 0.1))
    refused(lambda: train(j, model, data()), "seen", "BatchNorm")


def test_batch_norm_in_order(build, folder):
    """Running statistics are those of one worker that saw the micro-batches one after the other."""
    j = job(steps=4)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    twin = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    twin.load_state_dict(model.state_dict())
    j.attach(model, torch.optim.SGD(model.parameters(), 0.0))
    dataset = data()
    train(j, model, dataset)
    for s in range(1, 5):
        for m in range(4):
            items = samples.micro_batch_items(5, len(dataset), 8, 2, s, m)
            twin(torch.stack([dataset[i][0] for i in items]))
    assert int(model[1].num_batches_tracked) == int(twin[1].num_batches_tracked) == 16
    torch.testing.assert_close(model[1].running_mean, twin[1].running_mean)
    torch.testing.assert_close(model[1].running_var, twin[1].running_var)


def test_loading_in_processes(build, folder):
    """The same batches with and without processes that load, with random numbers in the data set."""
    class Noisy:
        def __len__(self):
            return 30

        def __getitem__(self, i):
            return torch.randn(3) + i

    seen = []
    for workers in (0, 2):
        j, model = job(steps=3), net()
        j.attach(model, torch.optim.SGD(model.parameters(), 0.1))
        got = []
        for x in j.batches(Noisy(), workers=workers):
            with j.step() as step:
                got.append(x.clone())
                step.backward(model(torch.cat([x, x], 1)).sum())
        seen.append(torch.cat(got))
    assert torch.equal(*seen)


def test_gradients_that_do_not_fit(build, folder):
    """Gradients far beyond their scale are computed again; the result is that of floats."""
    ends = []
    for determinism in ("fast", "bitwise"):
        j, model = job(determinism=determinism, steps=3), net()
        j.attach(model, torch.optim.SGD(model.parameters(), 1e-9))
        for x, y in j.batches(data()):
            with j.step() as step:
                step.backward(F.cross_entropy(model(x), y) * 1e6)
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(*ends)


def test_checkpoints(build, folder):
    """What is saved is read by safetensors' own reader, and a job that starts from it goes on as if it had not stopped."""
    from safetensors.torch import load_file

    from tidemill.torch import checkpoint

    dataset = data()
    first, model = job(steps=3), net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    first.attach(model, optimizer)
    train(first, model, dataset)
    first.save(folder / "c")
    found = {}
    for path in (folder / "c").glob("model-*.safetensors"):
        found.update(load_file(path))
    assert set(found) == set(model.state_dict())
    assert all(torch.equal(found[k], v) for k, v in model.state_dict().items())

    ends = []
    for again in (False, True):
        j, other = job(steps=2, seed=9), net()
        o = torch.optim.AdamW(other.parameters(), 0.7)
        if not again:
            other.load_state_dict(model.state_dict())
            o.load_state_dict(optimizer.state_dict())
            j._continues = True
        j.attach(other, o, start=folder / "c" if again else None)
        train(j, other, dataset)
        ends.append(torch.cat([p.detach().flatten() for p in other.parameters()]))
    assert torch.equal(*ends)

    checkpoint.export_dcp(folder / "d", model, optimizer, 3)
    twin = net()
    twin_optimizer = torch.optim.AdamW(twin.parameters(), 0.01)
    assert checkpoint.import_dcp(folder / "d", twin, twin_optimizer) == 3
    assert all(torch.equal(a, b) for a, b in zip(twin.parameters(), model.parameters()))
    job().attach(twin, twin_optimizer)  # it has stepped, and began as we know

    next(path for path in sorted((folder / "c").glob("model-*")) if load_file(path)).unlink()
    j, other = job(), net()
    refused(lambda: j.attach(other, torch.optim.AdamW(other.parameters()), start=folder / "c"), "missing")
    j, other = job(), nn.Linear(2, 2)
    refused(lambda: j.attach(other, torch.optim.AdamW(other.parameters()), start=folder / "none"), "tidemill.json")


def test_loss_not_finite(build, folder):
    for determinism in ("fast", "bitwise"):
        j, model = job(determinism=determinism), net()
        j.attach(model, torch.optim.SGD(model.parameters(), 0.1))
        try:
            for x, y in j.batches(data()):
                with j.step() as step:
                    step.backward(model(x).sum() * float("nan"))
            raise AssertionError("a loss that is no number went through")
        except tidemill.JobFailed as error:
            assert "not finite" in str(error)
    torch.use_deterministic_algorithms(False)


def test_library_checked(build, folder):
    script = "from tidemill import library, LibraryMissing\ntry:\n    library.load()\nexcept LibraryMissing as e:\n    print(e)"
    rows = [("/nowhere/libtidemill.so", "cannot load"), ("libc.so.6", "older than this package")]
    for path, words in rows:
        out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                             env={**os.environ, "TIDEMILL_LIBRARY": path}).stdout
        assert words in out, out

    class Fake:
        class tidemill_abi:  # noqa: N801
            def __new__(cls):
                return library.Abi(1, 1, 2, 3, 4, 5)

    try:
        library.check_abi(Fake, "fake.so")
        raise AssertionError("structs of other sizes went through")
    except LibraryMissing as error:
        assert "one source" in str(error)
    library.check_abi(library.load(), "the library")


def test_torch_versions(build, folder):
    kept = torch.__version__
    try:
        for version, good in (("1.13.1", False), ("2.3.1+cu121", False), ("2.4.0", True), ("2.11.0a0+git", True)):
            torch.__version__ = version
            if good:
                tidemill.torch.check_torch()
            else:
                refused(tidemill.torch.check_torch, version, "2.4")
    finally:
        torch.__version__ = kept


_WATCH = """
import signal
from tidemill.session import stay_with_agent
stay_with_agent()
print("watching", flush=True)
while True: signal.pause()
"""


def test_agent_gone_before(build, folder):
    """A script whose agent died before it could watch it ends when it comes to that, a shell between them or not."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    for words in ([sys.executable, "-c", _WATCH], ["sh", "-c", f"{sys.executable} -c '{_WATCH}'; echo went on"]):
        done = subprocess.run(words, env={**os.environ, "TIDEMILL_AGENT_PID": str(gone.pid)}, start_new_session=True,
                              stdout=subprocess.PIPE, text=True, timeout=120)
        assert done.returncode == -signal.SIGKILL and done.stdout == "", done


def test_too_late_for_the_result(build, folder):
    """A worker that comes when the job is done ends its script: what it would save are not the final weights."""
    for ask in (lambda j: list(j.batches(data())), lambda j: list(j.epochs(data()))):
        j, model = job(), net()
        j.attach(model, torch.optim.SGD(model.parameters(), 0.1))
        closed = []
        j._host, j._session = "127.0.0.1", mock.Mock(next=lambda: None, close=lambda: closed.append(1))
        try:
            ask(j)
        except SystemExit as end:
            assert end.code == 0 and closed and not j.has_result and not j._failed_exit
        else:
            raise AssertionError("its script went on")


def test_agent_gone_later(build, folder):
    """The agent is not its parent: a shell is. It goes with the agent all the same, and takes the shell with it."""
    agent = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    try:
        worker = subprocess.Popen(["sh", "-c", f"{sys.executable} -c '{_WATCH}'; echo went on"], text=True,
                                  env={**os.environ, "TIDEMILL_AGENT_PID": str(agent.pid)}, start_new_session=True,
                                  stdout=subprocess.PIPE)
        assert worker.stdout.readline() == "watching\n"
        agent.kill()
        rest, _ = worker.communicate(timeout=120)
        assert worker.returncode == -signal.SIGKILL and rest == "", rest
    finally:
        agent.kill()
        agent.wait()


def test_one_gpu_for_two(build, folder):
    """NCCL cannot put two workers on one GPU: said before it is tried, with both workers' names."""
    from tidemill.session import Peer
    from tidemill.torch.group import read_endpoint

    assert read_endpoint("h:1#d") == ("h", 1, "d", "") and read_endpoint("[::1]:2#d@GPU-7") == ("[::1]", 2, "d", "GPU-7")
    job = tidemill.torch.init(steps=1, batch=1)
    job._host, job._digest = "h", "d"
    seats = [Peer(n, n, 0, "", f"h:{n}#d@GPU-{n % 2}") for n in (1, 2, 3)]
    job._check_members(seats[:2])
    refused(lambda: job._check_members(seats), "workers 1 and 3", "gloo")
    refused(lambda: tidemill.torch.init(steps=1, batch=1, backend="mpi"), "gloo")


def test_settings_of_the_job(build, folder):
    kept = dict(os.environ)
    try:
        os.environ["TIDEMILL_STEPS"] = "9"
        assert tidemill.torch.init(batch=4).steps == 9
        refused(lambda: tidemill.torch.init(steps=8, batch=4), "8", "9", "TIDEMILL_STEPS")
        os.environ["TIDEMILL_STEPS"] = "many"
        refused(lambda: tidemill.torch.init(batch=4), "many")
    finally:
        os.environ.clear()
        os.environ.update(kept)


def test_stopwatch(build, folder):
    """What a worker waits for others is left out; a GPU's times come when they are over (events of a GPU are made up here)."""
    from tidemill.torch.group import Group, Stopwatch

    now, over = [0.0], [0.0]

    class Event:
        def __init__(self, enable_timing):
            self.at = None

        def record(self, stream):
            self.at = now[0]

        def query(self):
            return self.at <= over[0]

        def elapsed_time(self, other):
            return 1000 * (other.at - self.at)

    group = Group(0, 1, lambda: False)
    with mock.patch.object(time, "perf_counter", lambda: now[0]):
        watch = Stopwatch(torch.device("cpu"))
        watch.start(group, None)
        now[0], group.waited_s = 5.0, 2.0
        assert watch.read() == 3.0
    with mock.patch.object(torch.cuda, "Event", Event), mock.patch.object(torch.cuda, "current_stream", lambda device: None):
        watch = Stopwatch(torch.device("cuda", 0))
        watch.start(group)
        now[0], group.waited_s = 9.0, 3.0
        assert watch.read() == 0.0
        over[0] = 9.0
        watch.start(group)
        now[0] = 20.0
        assert watch.read() == 3.0

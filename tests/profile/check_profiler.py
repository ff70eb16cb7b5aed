"""The profiler against what it cannot know: torch's own buckets, arithmetic done by hand, and the weights without it.

    check_profiler.py PACKAGE      prints "ok NAME" or "FAILED NAME: why" a check
"""

import os
import sys
import tempfile

sys.path.insert(0, sys.argv[1])
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import nets  # noqa: E402
import tidemill  # noqa: E402
from tidemill import profiler  # noqa: E402

torch.set_num_threads(1)


def train(name, *, profiled, steps=14, accumulate=1, evaluate=False, clip=False, batch=2, optimizer=torch.optim.AdamW):
    """Weights after some steps, and what was measured."""
    model = nets.make(name, paced=False)
    update = optimizer(model.parameters(), lr=1e-3)
    torch.manual_seed(7)
    batches = [nets.batch_of(name, batch) for _ in range(4)]
    loader = torch.utils.data.DataLoader(list(range(10**6)), batch_size=1)

    def loop():
        for index, _ in zip(range(steps * accumulate), loader):
            inputs, targets = batches[index % 4]
            nets.loss_of(model(inputs), targets).backward()
            if evaluate:
                with torch.no_grad():
                    model(inputs)
            if index % accumulate == accumulate - 1:
                if clip:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                update.step()
                update.zero_grad()

    result = None
    if profiled:
        with profiler.profile(model, update, iterations=8, path=None) as profile:
            loop()
        result = profile.result()
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules()), "hooks are left"
        assert not any(p._post_accumulate_grad_hooks for p in model.parameters()), "hooks are left on parameters"
        assert not update._optimizer_step_post_hooks, "hooks are left on the optimizer"
    else:
        loop()
    return torch.cat([p.detach().flatten() for p in model.parameters()]), result


MEASURED = {}


def check_same_bits():
    for name in nets.NETS:
        with_profile, MEASURED[name] = train(name, profiled=True, clip=True)
        without, _ = train(name, profiled=False, clip=True)
        assert torch.equal(with_profile, without), f"{name}: other weights with a profile"
    options = {"accumulate": 3, "evaluate": True}
    with_profile, result = train("mlp", profiled=True, **options)
    without, _ = train("mlp", profiled=False, **options)
    assert torch.equal(with_profile, without), "other weights with a profile, over several micro-batches"
    assert result["micro_batches"] == 3, result["micro_batches"]


def check_parts_add_up():
    for name in nets.NETS:
        result = MEASURED[name]
        parts = sum(result[key] for key in ("forward_ms", "backward_ms", "optimizer_ms", "data_ms", "other_ms"))
        assert abs(parts - result["step_ms"]) < 1e-6 * parts, f"{name}: {parts} of {result['step_ms']}"
        assert result["micro_batches"] == 1 and result["micro_batch"] == 2
        assert all(result[key] > 0 for key in ("forward_ms", "backward_ms", "optimizer_ms")), name
        assert result["step_ms_p10"] <= result["step_ms"] <= result["step_ms_p90"]
        inside = sum(row["forward_ms"] or 0 for row in result["layers"])
        assert 0.5 * result["forward_ms"] < inside, f"{name}: layers take {inside} of {result['forward_ms']}"


def check_counts():
    """Operations and parameters by hand."""
    result = MEASURED["mlp"]
    sizes = [(784, 1024), (1024, 1024), (1024, 1024), (1024, 10)]
    assert result["params"] == sum(a * b + b for a, b in sizes)
    flops = sum(row["forward_flops"] for row in result["layers"])
    assert flops == sum(2 * a * b for a, b in sizes), flops
    assert abs(result["train_gflop_per_sample"] - 3 * flops / 1e9) < 1e-9
    result = MEASURED["gpt"]
    width, length = 192, 64
    blocks = [row for row in result["layers"] if row["kind"] == "block" and row["params"] > 100000]
    assert len(blocks) == 5
    by_hand = 2 * length * 12 * width * width + 4 * length * length * width
    for row in blocks:
        assert row["forward_flops"] == by_hand, (row["forward_flops"], by_hand)
        assert row["output_values"] == length * width
        assert row["params"] == 12 * width * width + 13 * width
    assert result["optimizer_states"] == 2
    _, result = train("mlp", profiled=True, optimizer=torch.optim.SGD)
    assert result["optimizer_states"] == 0
    _, result = train("cnn", profiled=True, batch=3)
    first = next(row for row in result["layers"] if row["kind"] == "conv")
    assert first["forward_flops"] == 2 * 32 * 32 * 3 * 9 * 32, first


def check_buckets():
    """Torch's own buckets of the same gradients."""
    for name in nets.NETS:
        result = MEASURED[name]
        tensors = [torch.empty(row["bytes"] // 4) for row in result["gradients"]]
        limits = [profiler.DDP_FIRST_BUCKET_BYTES, profiler.DDP_BUCKET_BYTES]
        theirs, _ = dist._compute_bucket_assignment_by_size(tensors, limits)
        ours = [bucket["tensors"] for bucket in profiler.ddp_buckets(result["gradients"])]
        assert ours == [len(indices) for indices in theirs], f"{name}: {ours} and {[len(t) for t in theirs]}"
        ready = [row["ready"] for row in result["gradients"]]
        assert ready == sorted(ready) and ready[-1] == 1 and ready[0] >= 0
        assert sum(row["bytes"] for row in result["gradients"]) == 4 * result["params"]


def check_rebuilt_buckets():
    """What DistributedDataParallel makes of them in a run."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        for name in nets.NETS:
            model = torch.nn.parallel.DistributedDataParallel(nets.make(name, paced=False))
            for _ in range(3):
                inputs, targets = nets.batch_of(name, 2)
                nets.loss_of(model(inputs), targets).backward()
            sizes = model._get_ddp_logging_data()["rebuilt_bucket_sizes"]
            theirs = [int(size) for size in str(sizes).replace(",", " ").split()]
            ours = [bucket["bytes"] for bucket in profiler.ddp_buckets(MEASURED[name]["gradients"])]
            assert sorted(ours) == sorted(theirs), f"{name}: {ours} and {theirs}"
        dist.destroy_process_group()


def check_tied_weights():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.place = torch.nn.Parameter(torch.zeros(16))
            self.token = torch.nn.Embedding(50, 16)
            self.blocks = torch.nn.ModuleList([nets.Block(16, 2) for _ in range(2)])
            self.head = torch.nn.Linear(16, 50, bias=False)
            self.head.weight = self.token.weight

        def forward(self, tokens):
            x = self.token(tokens) + self.place
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    model = Tied()
    update = torch.optim.SGD(model.parameters(), lr=0.1)
    with profiler.profile(model, update, iterations=8, path=None) as profile:
        while not profile.done:
            update.zero_grad()
            model(torch.randint(0, 50, (3, 8))).sum().backward()
            update.step()
    rows = {row["name"]: row for row in profile.result()["layers"]}
    assert rows["token"]["tied"] == "head" and rows["head"]["tied"] == "token", rows
    assert rows["token"]["params"] == 800 and rows["head"]["params"] == 0
    assert rows["outside"]["params"] == 16 and list(rows)[:3] == ["outside", "token", "blocks.0"]
    assert sum(row["params"] for row in rows.values()) == sum(p.numel() for p in model.parameters())


def check_complaints():
    model = nets.make("mlp", paced=False)
    update = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = nets.batch_of("mlp", 2)

    def expect(words, use, **options):
        try:
            with profiler.profile(model, update, path=None, **options) as profile:
                use()
            profile.result()
        except profiler.ProfileError as error:
            assert words in str(error), error
            return
        raise AssertionError(f"no complaint with {words!r}")

    def step(count, call=True):
        for _ in range(count):
            update.zero_grad()
            if call:
                nets.loss_of(model(inputs), targets).backward()
            update.step()

    def closure():
        update.zero_grad()
        loss = nets.loss_of(model(inputs), targets)
        loss.backward()
        return loss

    def step_inside():
        for _ in range(14):
            update.step(closure)

    expect("calls the model itself", step_inside, iterations=8)
    expect("0 iterations were timed", lambda: None)
    expect("are needed", lambda: step(9))
    expect("too few", lambda: None, iterations=3)
    expect("was not called between two steps", lambda: step(10, call=False))


def check_compiled():
    model = torch.compile(nets.make("mlp", paced=False), backend="eager")
    update = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = nets.batch_of("mlp", 2)
    with profiler.profile(model, update, iterations=8, path=None) as profile:
        while not profile.done:
            nets.loss_of(model(inputs), targets).backward()
            update.step()
            update.zero_grad()
    result = profile.result()
    assert [row["name"] for row in result["layers"]] == ["model"], result["layers"]
    assert result["layers"][0]["params"] == result["params"] > 0 and result["layers"][0]["forward_flops"] > 0
    assert result["layers"][0]["forward_ms"] > 0 and len(result["gradients"]) == 8


def check_the_file():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "job.tmprofile")
        model = nets.make("cnn", paced=False)
        update = torch.optim.SGD(model.parameters(), lr=0.1)
        inputs, targets = nets.batch_of("cnn", 2)
        with tidemill.profile(model, update, iterations=8, path=path, name="my net", batch=5) as profile:
            while not profile.done:
                update.zero_grad()
                nets.loss_of(model(inputs), targets).backward()
                update.step()
        with open(path, encoding="utf-8") as file:
            text = file.read()
        assert text.startswith("tidemill-profile 1\nsource: torch ") and "\nmy_net,cpu,fp32,5," in text
        assert os.listdir(folder) == ["job.tmprofile"]


failed = 0
for check in [value for key, value in list(globals().items()) if key.startswith("check_")]:
    try:
        check()
        print(f"ok {check.__name__}")
    except Exception as error:  # noqa: BLE001: whatever it is, it is named
        failed += 1
        print(f"FAILED {check.__name__}: {type(error).__name__}: {error}")
sys.exit(failed > 0)

"""Weights, gradients and optimizer's state in shards (FSDP) on a real cluster: replicas and shards are lost, come back and become others;
the weights are those of one undisturbed process that has everything."""
import re

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

import patterns
from check_cluster import SCRIPT, finish
from check_shards import saved_is_whole, states, whole_state
from cluster import Cluster, Trouble, python
from tidemill import samples, torch as elastic
from tidemill.errors import UsageError
from tidemill.torch import plan
from tidemill.torch.full import units_in
from train_small import Gpt, Points, cut_by_torch, half, make


def start(build, folder, model, steps, *words, shard="full", determinism="bitwise", stages=2, micro_batches=8):
    command = [python(), SCRIPT, model, str(folder / "out"), "--steps", str(steps), "--determinism", determinism, "--gate",
               str(folder / "cluster" / "gate"), "--shard", shard, "--save", str(folder / "saved"), *words]
    return Cluster(build, folder / "cluster", command, steps, stages=stages, micro_batches=micro_batches)


def in_parts(cluster, model, layout):
    """In such a layout no worker had all weights, or the whole state, but after the last step."""
    weights = sum(p.numel() for p in make(model).parameters())
    found = [(int(w), int(s)) for path in cluster.folder.glob("worker-*.log")
             for step, w, s, where in re.findall(r"^applied (\d+) .* weights (\d+) state (\d+) layout (\S+)$", path.read_text(), re.M)
             if where == layout and int(step) < cluster.steps]
    if not found or not all(0 < w < weights and 0 < s < whole_state(model) for w, s in found):
        raise Trouble(f"of {weights} weights and {whole_state(model)} numbers of state workers had {sorted(set(found))} in {layout}\n"
                      f"{cluster.tail()}")


def seen_whole(cluster):
    """Every fifth step all weights were there, the same on all workers."""
    steps = {}
    for path in cluster.folder.glob("worker-*.log"):
        for step, hash_, finite in re.findall(r"^whole (\d+) (\S+) (\S+)$", path.read_text(), re.M):
            assert finite == "True", (step, path.name)
            steps.setdefault(int(step), set()).add(hash_)
    assert steps and all(step % 5 == 0 and len(hashes) == 1 for step, hashes in steps.items()), steps


def layouts(cluster):
    return {layout for layout, _ in states(cluster)}


def test_full_fully_shard(build, folder):
    """torch's fully_shard on job.mesh: two shards, then two replicas of them; a worker is killed, then an instance is lost."""
    steps = 40
    with start(build, folder, "gpt", steps, shard="fsdp") as c:
        for number in (1, 2):
            c.start_agent(number)
        c.await_(lambda: "1x2" in layouts(c), 240, "two shards")
        for number in (3, 4):
            c.start_agent(number)
        c.await_(lambda: "2x2" in layouts(c), 240, "two replicas of two shards")
        c.kill_worker(2)
        c.await_step(c.newest()[0] + 3)
        c.await_step(c.newest()[0] + 1, 4)
        c.kill_instance(3)
        c.await_step(c.newest()[0] + 2)
        finish(c, build, folder, "gpt", steps)
        in_parts(c, "gpt", "2x2")
        in_parts(c, "gpt", "1x2")
        seen_whole(c)
        c.await_(lambda: (folder / "saved" / "tidemill.json").exists(), 30, "the checkpoint")
        saved_is_whole(folder, "gpt", torch.load(folder / "alone-0")["hash"])


def test_full_from_copies(build, folder):
    """One replica of two shards, with BatchNorm: a worker goes for good, and what it alone held comes from the copies."""
    steps = 40
    with start(build, folder, "cnn", steps) as c:
        for number in (1, 2):
            c.start_agent(number)
        c.await_(lambda: "1x2" in layouts(c), 240, "two shards")
        c.await_(lambda: list((c.folder / "copies").glob("set-*/layer-3.*")) != [], 60, "a copy set")
        c.await_step(c.newest()[0] + 2)
        c.kill_instance(1)
        c.await_step(c.newest()[0] + 2, 1)
        c.start_agent(3)
        c.await_step(c.newest()[0] + 2, 2)
        finish(c, build, folder, "cnn", steps)
        in_parts(c, "cnn", "1x2")


def test_full_idle_worker(build, folder):
    """Three shards for two micro-batches: a worker that has none follows the others, and clips where their loops do; activations are computed
    again."""
    steps = 80
    with start(build, folder, "gpt", steps, "--micro-batch", "8", "--checkpoint", shard="fsdp", stages=3, micro_batches=2) as c:
        for number in (1, 2, 3):
            c.start_agent(number)
        c.await_(lambda: "1x3" in layouts(c), 240, "three shards")
        c.await_step(c.newest()[0] + 2)
        c.kill_worker(2)
        c.await_step(c.newest()[0] + 3)
        c.await_step(c.newest()[0] + 1, 3)
        finish(c, build, folder, "gpt", steps, True, "--micro-batch", "8")
        in_parts(c, "gpt", "1x3")


def test_full_fast(build, folder):
    """Sums of floats: within 1e-2 of each weight, or 2e-3."""
    steps = 40
    with start(build, folder, "mlp", steps, shard="fsdp", determinism="fast") as c:
        for number in (1, 2, 3):
            c.start_agent(number)
        c.await_step(5)
        c.kill_worker(1)
        c.await_step(c.newest()[0] + 3)
        finish(c, build, folder, "mlp", steps, exact=False)


def test_full_made_on_meta(build, folder):
    """Made without values, and computing in bfloat16 (MixedPrecisionPolicy): a worker of two shards is killed, and comes back."""
    steps = 40
    with start(build, folder, "gpt", steps, "--meta", shard="fsdp") as c:
        for number in (1, 2):
            c.start_agent(number)
        c.await_(lambda: "1x2" in layouts(c), 240, "two shards")
        c.await_(lambda: list((c.folder / "copies").glob("set-*/layer-3.*")) != [], 240, "a copy set")
        c.kill_worker(2)
        c.await_step(c.newest()[0] + 3, 2)
        finish(c, build, folder, "gpt", steps, True, "--meta")
        in_parts(c, "gpt", "1x2")


def test_full_mixed_precision_as_torch(build, folder):
    """fully_shard(..., mp_policy=MixedPrecisionPolicy(...)): the weights are those of torch's own, to the bit."""
    data = Points("gpt", 64)

    def fresh():
        torch.manual_seed(7)
        model = Gpt()
        for block in model.blocks:
            block.drop.p = 0.0
        return model

    job, ours = elastic.init(steps=4, batch=8, seed=3), fresh()
    cut_by_torch(ours, job.mesh, **half())
    job.attach(ours, torch.optim.AdamW(ours.parameters(), lr=1e-2))
    for x, y in job.batches(data):
        out = ours(x)
        assert out.dtype == torch.bfloat16
        job.backward(nn.functional.cross_entropy(out, y.flatten()))
    assert job.done() and {p.dtype for p in ours.parameters()} == {torch.float32}

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        theirs = fresh()
        cut_by_torch(theirs, init_device_mesh("cpu", (1,)), **half())
        optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-2)
        for step in range(1, 5):
            rows = [data[i] for i in samples.micro_batch_items(3, len(data), 8, 8, step, 0)]
            optimizer.zero_grad()
            x, y = (torch.stack(column) for column in zip(*rows))
            nn.functional.cross_entropy(theirs(x), y.flatten()).backward()
            optimizer.step()
        for name, tensor in theirs.state_dict().items():
            assert torch.equal(ours.state_dict()[name], tensor.full_tensor()), name
    finally:
        torch.distributed.destroy_process_group()


def test_full_units(build, folder):
    """What is gathered together, and how fully_shard is undone."""
    assert [type(m).__name__ for m in units_in(Gpt())] == ["Block", "Block"]
    model = make("mlp")
    assert list(units_in(model)) == [model[0], model[3], model[5]]
    nested = nn.ModuleDict({"a": nn.ModuleList([nn.ModuleList([nn.Linear(2, 2), nn.Tanh()])])})
    assert list(units_in(nested)) == [nested["a"][0][0]]

    job, model = patterns.begin(), Gpt()
    kinds = [type(m) for m in model.modules()]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    fully_shard(model.blocks[0], mesh=job.mesh, reshard_after_forward=False)
    fully_shard(model.blocks[1], mesh=job.mesh)
    fully_shard(model, mesh=job.mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    assert plan.is_sharded(model)
    assert plan.take(model, optimizer) == {model.blocks[0]: True, model.blocks[1]: False, model: False}
    assert [type(m) for m in model.modules()] == kinds and model.head.weight is model.tokens.weight
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert {id(p) for p in model.parameters()} == {id(p) for g in optimizer.param_groups for p in g["params"]}
    assert not torch.distributed.is_initialized()


def test_full_refuse(build, folder):
    """What would be trained otherwise than the script says."""
    def refused(words, cut, **named):
        job, model = patterns.begin(), patterns.net()
        try:
            cut(job, model)
            job.attach(model, patterns.sgd(model), **named)
        except UsageError as error:
            assert words in str(error), error
            return
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
        raise Trouble(f"not refused: {words}")

    refused("CPUOffloadPolicy", lambda j, m: fully_shard(m, mesh=j.mesh, offload_policy=CPUOffloadPolicy(pin_memory=False)))
    refused("shard='optimizer'", lambda j, m: fully_shard(m, mesh=j.mesh), shard="optimizer")
    refused("state of the script's own", lambda j, m: None, shard="full", state={"more": nn.Linear(2, 2)})


for _test in (test_full_from_copies, test_full_idle_worker, test_full_fast, test_full_made_on_meta):
    _test.slow = True

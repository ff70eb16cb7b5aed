"""Small models in an ordinary loop; what tests/torch disturbs. Use: train_small.py MODEL OUT [--determinism D] [--steps N]"""
import argparse
import hashlib
import os
import time
from pathlib import Path
from typing import Callable, Optional

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset

import tidemill.torch


class Points(Dataset):
    """Items that are a function of their number; images, vectors or windows of text."""

    def __init__(self, kind: str, count: int = 500) -> None:
        self.kind, self.count = kind, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int):
        g = torch.Generator().manual_seed(i)
        if self.kind == "gpt":
            text = torch.randint(0, 32, (17,), generator=g)
            text = torch.cumsum(text % 3, 0) % 32  # something to learn
            return text[:-1], text[1:]
        shape = (1, 8, 8) if self.kind == "cnn" else (16,)
        x = torch.randn(shape, generator=g)
        x = x + 0.01 * torch.randn(shape)  # augmentation: drawn from the job's own numbers
        return x, int(x.sum() > 0)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        heads = [t.unflatten(-1, (2, -1)).transpose(1, 2) for t in (q, k, v)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.drop(self.out(mixed.transpose(1, 2).flatten(-2)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class Gpt(nn.Module):
    again = False  # activations are computed again
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(32, width), nn.Embedding(16, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 32, bias=False)
        self.head.weight = self.tokens.weight  # tied

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False) if self.again else block(h)
        return self.head(self.norm(h)).flatten(0, 1)


def make(kind: str) -> nn.Module:
    if kind == "mlp":
        return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(),
                             nn.Linear(64, 2))
    if kind == "cnn":
        return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3),
                             nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2))
    return Gpt()


class Gate:
    """Steps behind the one that a file names go slowly, so that a test has time to disturb them on any machine."""

    def __init__(self, path: Optional[str]) -> None:
        self.path = path

    def open(self, step: int) -> bool:
        try:
            return self.path is None or step <= int(Path(self.path).read_text())
        except (OSError, ValueError):  # it is being written
            return False

    def wait(self, step: int, cancelled: Callable[[], bool]) -> None:
        end = time.monotonic() + float(os.environ.get("GATE_S", 0.7))
        while not self.open(step) and not cancelled() and time.monotonic() < end:
            time.sleep(0.01)


def weights_hash(model: nn.Module) -> str:
    h = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        h.update(name.encode())
        h.update(tensor.numpy().tobytes())
    return h.hexdigest()[:32]


def numbers_of(optimizer: torch.optim.Optimizer) -> int:
    """How many its state has here."""
    return sum(t.numel() for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor))


def weights_of(model: nn.Module) -> int:
    """How many of them are in memory here."""
    return sum(min(p.numel(), p.untyped_storage().nbytes() // 4) if p.stride().count(0) == 0 else 0 for p in model.parameters())


def cut_by_torch(model: nn.Module, mesh, **more) -> None:
    """As scripts for FSDP2 do."""
    from torch.distributed.fsdp import fully_shard

    for block in model.blocks if isinstance(model, Gpt) else list(model):
        if any(True for _ in block.parameters()):
            fully_shard(block, mesh=mesh, **more)
    fully_shard(model, mesh=mesh, **more)


def made_on_meta(kind: str, mesh, **more) -> nn.Module:
    """As large models are made: without values, cut, then with memory, then with values."""
    with torch.device("meta"):
        model = make(kind)
    cut_by_torch(model, mesh, **more)
    model.to_empty(device="cpu")
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return model


def half() -> dict:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    return {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}


def layout(job: "tidemill.torch.Job") -> str:
    """As replicas x shards."""
    return f"{job._asked.pipelines}x{job._asked.stages}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["mlp", "cnn", "gpt"])
    parser.add_argument("out")
    parser.add_argument("--determinism", default="bitwise")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--checkpoint", action="store_true", help="compute activations of blocks again in the backward pass")
    parser.add_argument("--gate", help="a file with a step: those behind it go slowly")
    parser.add_argument("--slow", default="", help="the instance whose micro-batches take longer")
    parser.add_argument("--fail-at", type=int, default=0)
    parser.add_argument("--unlike", action="store_true", help="begin with weights that differ between workers")
    parser.add_argument("--shard", help="what is sharded")
    parser.add_argument("--meta", action="store_true", help="make the model on the meta device, with weights in bfloat16 while it computes")
    parser.add_argument("--average", action="store_true", help="keep an average of the weights")
    parser.add_argument("--warm-up", action="store_true", help="try the loop before joining")
    parser.add_argument("--save", help="a folder for a checkpoint of the last step")
    words = parser.parse_args()

    gate = Gate(words.gate)
    job = tidemill.torch.init(steps=words.steps, batch=16, micro_batch=words.micro_batch, seed=3, determinism=words.determinism,
                              warm_up=words.warm_up or None)
    torch.set_num_threads(1)
    model = make(words.model)
    if words.checkpoint:
        model.again = True
    if words.unlike:
        torch.nn.init.constant_(model[0].bias, float(os.environ["TIDEMILL_INSTANCE_ID"]))
    if words.meta:
        model = made_on_meta(words.model, job.mesh, **half())
    elif words.shard == "fsdp":
        cut_by_torch(model, job.mesh)
    if words.model == "mlp":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, words.steps)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)) if words.average else None
    if words.average:
        job.on_commit(lambda step, loss: average.update_parameters(model))
    job.attach(model, optimizer, scheduler, clip=None if words.shard == "fsdp" else 1.0, shard=None if words.shard == "fsdp" else words.shard, state={"average": average} if words.average else None)

    done = {}  # micro-batches of each step, here

    @job.after_step
    def tell(step, loss):
        if words.slow:
            print(f"share {step} {done.get(step, 0)}", flush=True)
        print(f"applied {step} of {job.world_size} loss {loss:.6f} rank {job.rank} main {int(job.is_main)}"
              + (f" at {os.environ['GROUP_RANK']}.{os.environ['LOCAL_RANK']} seat {job._asked.pipeline}.{job._asked.stage}"
                 f" weights {weights_of(model)} state {numbers_of(optimizer)} layout {layout(job)}" if words.shard else ""), flush=True)

    def evaluate(step, loss):
        model.eval()
        with torch.no_grad():
            finite = bool(torch.isfinite(model(Points(words.model)[0][0].unsqueeze(0))).all())
        model.train()
        print(f"whole {step} {weights_hash(model)} {finite}", flush=True)

    if words.shard:
        job.after_step(evaluate, whole=5)
    for inputs, targets in job.batches(Points(words.model)):
        if job.rehearsing:
            print(f"rehearsed as {job.rank} of {job.world_size} main {int(job.is_main)}", flush=True)
        with job.step() as step:
            if words.fail_at and step.number == words.fail_at:
                raise ValueError("the data is odd")
            gate.wait(step.number, lambda: step.cancelled)
            done[step.number] = done.get(step.number, 0) + 1
            if words.slow == os.environ.get("TIDEMILL_INSTANCE_ID"):
                time.sleep(0.05)
            loss = F.cross_entropy(model(inputs), targets.flatten())
            step.backward(loss)
            if words.shard == "fsdp":  # as scripts for fully_shard have it: the same as attach(clip=1.0)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    if words.save:
        job.save(words.save)
    print(f"followed {job._state.follow.advanced}", flush=True)
    if job.done():
        torch.save({"hash": weights_hash(average if words.average else model), "model": model.state_dict(), "lr": optimizer.param_groups[0]["lr"],
                    "loss": job.last_loss}, f"{words.out}-{os.environ.get('TIDEMILL_INSTANCE_ID', '0')}")


if __name__ == "__main__":
    main()

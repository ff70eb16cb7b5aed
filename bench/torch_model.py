"""The model, the data and the loops that the PyTorch benches compare: Tidemill's, DistributedDataParallel's and torchft's.

    torch_model.py tidemill --steps N --determinism fast|bitwise
    torch_model.py ddp --steps N --checkpoint FILE --every K     (under torchrun)
    torch_model.py torchft --steps N                             (under torchrun, one for each replica group)

Each prints "applied STEP of WORKERS loss L at T" after every step; T is the clock on the wall. With --turns SOCKET
it trains in turns instead (bench/torch_steady.py): a block of steps when it is told to, and tells how long that took.
"""
import argparse
import contextlib
import os
import socket
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, layers: int = 4, width: int = 128, heads: int = 4, context: int = 64, vocab: int = 256) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


class Words(Dataset):
    """Windows of a made-up text with something to learn: each byte follows from the two before it."""

    def __init__(self, context: int = 64, count: int = 4096, vocab: int = 256) -> None:
        g = torch.Generator().manual_seed(1)
        text = torch.zeros(count + context + 1, dtype=torch.long)
        noise = torch.randint(0, 4, (len(text),), generator=g)
        for i in range(2, len(text)):
            text[i] = (3 * text[i - 1] + text[i - 2] + noise[i]) % min(vocab, 64)
        self.text, self.context, self.count = text, context, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int):
        return self.text[i: i + self.context], self.text[i + 1: i + 1 + self.context]


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def make(seed: int = 1):
    torch.manual_seed(seed)
    model = Gpt()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def tell(step: int, workers: int, loss: float, rank: int = 0) -> None:
    print(f"applied {step} of {workers} loss {loss:.5f} at {time.time():.3f} rank {rank}", flush=True)


def tell_result(model: nn.Module, steps: int) -> None:
    """The loss on data that is the same whoever asks."""
    dataset = Words()
    pairs = [dataset[53 * j] for j in range(64)]
    inputs, targets = (torch.stack(c) for c in zip(*pairs))
    with torch.no_grad():
        print(f"after {steps} steps {float(loss_of(model, inputs, targets)):.6f}", flush=True)


class Turns:
    """Called after every step. At the end of a block: tells the bench what it took, and waits for the next turn."""

    def __init__(self, words: argparse.Namespace, kind: str) -> None:
        self._block, self._began = words.block, 0.0
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(words.turns)
        self._line.sendall(f"{kind}\n".encode())

    def __call__(self, step: int, workers: int) -> bool:
        """False: that was the last turn."""
        if workers != 2 or step % self._block:
            return True
        now = time.perf_counter()
        if self._began:
            self._line.sendall(f"{now - self._began:.6f} {time.process_time() - self._cpu:.6f}\n".encode())
        else:
            self._line.sendall(b"ready\n")
        go_on = self._line.recv(1) == b"g"
        self._began, self._cpu = time.perf_counter(), time.process_time()
        return go_on


def tidemill_loop(words: argparse.Namespace) -> None:
    import tidemill.torch

    job = tidemill.torch.init(steps=words.steps, batch=words.batch, micro_batch=words.micro_batch, seed=1,
                              determinism=words.determinism)
    torch.set_num_threads(1)
    model, optimizer = make()
    job.attach(model, optimizer)
    if words.turns:
        turns = Turns(words, words.determinism)
        job.after_step(lambda step, loss: turns(step, job.world_size) or os._exit(0))
    else:
        job.after_step(lambda step, loss: tell(step, job.world_size, loss, job.rank))
    for inputs, targets in job.batches(Words()):
        with job.step() as step:
            step.backward(loss_of(model, inputs, targets))
    if job.done():
        tell_result(model, words.steps)


def ddp_loop(words: argparse.Namespace) -> None:
    """What people write: each worker takes batch / (workers at the start), accumulates, and saves now and then."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    model, optimizer = make()
    turns = Turns(words, "ddp") if words.turns else None
    step = 0
    if words.checkpoint and os.path.exists(words.checkpoint):
        saved = torch.load(words.checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    dataset = Words()
    share = words.batch // words.workers // words.micro_batch  # micro-batches of a worker: fixed by the script
    while step < words.steps:
        step += 1
        optimizer.zero_grad()
        total = 0.0
        for m in range(share):
            inputs, targets = micro_batch_of(dataset, words, step, rank * share + m)
            if m + 1 < share:
                with parallel.no_sync():
                    loss = loss_of(parallel, inputs, targets) / share
                    loss.backward()
            else:
                loss = loss_of(parallel, inputs, targets) / share
                loss.backward()
            total += loss.item()
        optimizer.step()
        if turns is not None and not turns(step, workers):
            break
        if turns is None and rank == 0:
            tell(step, workers, total)
        if rank == 0 and words.checkpoint and step % words.every == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                       words.checkpoint + ".new")
            os.replace(words.checkpoint + ".new", words.checkpoint)
    if rank == 0 and not words.turns:
        tell_result(model, words.steps)
    dist.destroy_process_group()


def micro_batch_of(dataset: Dataset, words: argparse.Namespace, step: int, number: int):
    """Inputs and targets of a micro-batch of a step, as the script deals them out."""
    first = ((step - 1) * words.batch + number * words.micro_batch) % (len(dataset) - words.micro_batch)
    pairs = [dataset[(37 * (first + j)) % len(dataset)] for j in range(words.micro_batch)]
    return tuple(torch.stack(c) for c in zip(*pairs))


def torchft_loop(words: argparse.Namespace) -> None:
    """As torchft's own examples: a manager around DDP and the optimizer; a replica that joins gets its state from another."""
    from datetime import timedelta

    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    torch.set_num_threads(1)
    model, plain = make()
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)), min_replica_size=1, timeout=timedelta(seconds=10),
        load_state_dict=lambda state: (model.load_state_dict(state["model"]), plain.load_state_dict(state["optimizer"])),
        state_dict=lambda: {"model": model.state_dict(), "optimizer": plain.state_dict()},
        replica_id=f"replica_{os.environ['REPLICA_GROUP_ID']}")
    parallel, optimizer = DistributedDataParallel(manager, model), Optimizer(manager, plain)
    dataset = Words()
    share = words.batch // words.workers // words.micro_batch
    while manager.current_step() < words.steps:
        optimizer.zero_grad()  # begins a quorum
        step, before, total = manager.current_step() + 1, manager.current_step(), 0.0
        place = int(os.environ["REPLICA_GROUP_ID"]) % words.workers
        for m in range(share):
            inputs, targets = micro_batch_of(dataset, words, step, place * share + m)
            with parallel.no_sync() if m + 1 < share else contextlib.nullcontext():
                loss = loss_of(parallel, inputs, targets) / share
                loss.backward()
            total += loss.item()
        optimizer.step()
        if manager.current_step() > before:
            tell(manager.current_step(), manager.num_participants(), total)
    tell_result(model, words.steps)
    manager.shutdown(wait=False)
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("loop", choices=["tidemill", "ddp", "torchft"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--determinism", default="fast")
    parser.add_argument("--checkpoint", default="")
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--turns", default="", help=argparse.SUPPRESS)
    parser.add_argument("--block", type=int, default=10, help=argparse.SUPPRESS)
    words = parser.parse_args()
    {"tidemill": tidemill_loop, "ddp": ddp_loop, "torchft": torchft_loop}[words.loop](words)


if __name__ == "__main__":
    main()

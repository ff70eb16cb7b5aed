"""A small GPT as a list of layers; what tests/torch disturbs. Use: train_pipeline.py OUT [--steps N] [...]"""
import argparse
import hashlib
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import tidemill.torch
from train_small import Block, Gate, Points

WIDTH = 32


class Embed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(32, WIDTH), nn.Embedding(16, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tokens(x) + self.places(torch.arange(x.shape[1]))


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(x))


class Convolution(nn.Module):
    """With BatchNorm, and a part whose activations it computes again by itself."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1 if first else 8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.inner = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Dropout(0.1), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, F.relu(self.norm(self.conv(x))), use_reentrant=False)


def layers_of(model: str):
    """The layers, and which weight they share."""
    if model == "cnn":
        return [lambda: Convolution(True), *[lambda: Convolution(False)] * 4, lambda: nn.Sequential(nn.Flatten(), nn.Linear(512, 2))], []
    return [Embed, *[lambda: Block(WIDTH)] * 4, Head], [((0, "tokens.weight"), (5, "out.weight"))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--determinism", default="bitwise")
    parser.add_argument("--gate")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--model", choices=["gpt", "cnn"], default="gpt")
    parser.add_argument("--compile", help="by which backend of torch.compile")
    words = parser.parse_args()

    job = tidemill.torch.init(steps=words.steps, batch=16, micro_batch=2, seed=3, determinism=words.determinism)
    torch.set_num_threads(1)
    gate = Gate(words.gate)

    def loss_of(out: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        gate.wait(job.committed_step + 1, job._session.cancelled)
        return F.cross_entropy(out.flatten(0, -2).float(), targets.flatten())

    layers, tied = layers_of(words.model)
    pipeline = tidemill.torch.Pipeline(
        job, layers,
        loss=loss_of,
        optimizer=lambda layer: torch.optim.AdamW(layer.parameters(), lr=2e-3),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, words.steps),
        clip=1.0, tied=tied, recompute=words.recompute, compile={"backend": words.compile} if words.compile else False,
        autocast=torch.bfloat16 if words.bf16 else None)

    @job.after_step
    def tell(step, loss):
        print(f"applied {step} of {job.world_size} loss {loss:.6f} rank {job.rank} layout "
              f"{pipeline.layout[0]}x{pipeline.layout[1]}", flush=True)

    pipeline.train(Points(words.model))
    print(f"followed {pipeline._stack.follow.advanced}", flush=True)
    table = {}
    for number in pipeline.result:
        h = hashlib.sha256()
        for name, tensor in sorted(pipeline.layer(number).state_dict().items()):
            h.update(name.encode())
            h.update(tensor.numpy().tobytes())
        table[number] = h.hexdigest()[:24]
    torch.save({"layers": table, "loss": job.last_loss}, f"{words.out}-{os.environ.get('TIDEMILL_INSTANCE_ID', '0')}")


if __name__ == "__main__":
    main()

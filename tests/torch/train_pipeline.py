"""A small GPT as a list of layers; what tests/torch disturbs. Use: train_pipeline.py OUT [--steps N] [...]"""
import argparse
import hashlib
import os

import torch
from torch import nn
from torch.nn import functional as F

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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--determinism", default="bitwise")
    parser.add_argument("--gate")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    words = parser.parse_args()

    job = tidemill.torch.init(steps=words.steps, batch=16, micro_batch=2, seed=3, determinism=words.determinism)
    torch.set_num_threads(1)
    gate = Gate(words.gate)

    def loss_of(out: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        gate.wait(job.committed_step + 1, job._session.cancelled)
        return F.cross_entropy(out.flatten(0, 1).float(), targets.flatten())

    pipeline = tidemill.torch.Pipeline(
        job, [Embed, *[lambda: Block(WIDTH)] * 4, Head],
        loss=loss_of,
        optimizer=lambda layer: torch.optim.AdamW(layer.parameters(), lr=2e-3),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, words.steps),
        clip=1.0, tied=[((0, "tokens.weight"), (5, "out.weight"))], recompute=words.recompute,
        autocast=torch.bfloat16 if words.bf16 else None)

    @job.after_step
    def tell(step, loss):
        print(f"applied {step} of {job.world_size} loss {loss:.6f} rank {job.rank} layout "
              f"{pipeline.layout[0]}x{pipeline.layout[1]}", flush=True)

    pipeline.train(Points("gpt"))
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

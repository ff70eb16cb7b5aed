"""A GPT of bytes as a list of layers: pipelines whose layout follows the instances that there are.

    python train.py              alone
    tidemill run job.yaml        on machines that come and go
"""
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import tidemill.torch

CONTEXT, WIDTH, HEADS = 64, 96, 4


class Text(Dataset):
    def __init__(self, path: Path) -> None:
        self.bytes = torch.frombuffer(bytearray(path.read_bytes()[:400_000]), dtype=torch.uint8).long()

    def __len__(self) -> int:
        return (len(self.bytes) - 1) // CONTEXT

    def __getitem__(self, i: int):
        window = self.bytes[i * CONTEXT: (i + 1) * CONTEXT + 1]
        return window[:-1], window[1:]


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tokens(x) + self.places.weight[: x.shape[1]]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(x))


job = tidemill.torch.init(steps=50, batch=32, micro_batch=4, seed=1, determinism="bitwise")
pipeline = tidemill.torch.Pipeline(
    job,
    layers=[Embedding, Block, Block, Block, Block, Head],  # made where they are needed, from the job's seed
    loss=lambda logits, targets: F.cross_entropy(logits.flatten(0, 1), targets.flatten()),
    optimizer=lambda layer: torch.optim.AdamW(layer.parameters(), lr=3e-3),
    scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50),
    clip=1.0,
    tied=[((0, "tokens.weight"), (5, "out.weight"))],
    recompute=True,
)


@job.after_step
def show(step: int, loss: float) -> None:
    if step % 10 == 0 and job.is_main:
        print(f"step {step}: loss {loss:.3f}, layout {pipeline.layout[0]}x{pipeline.layout[1]}", flush=True)


text = Path(__file__).resolve().parents[2] / "data" / "text"
pipeline.train(Text(sorted(text.glob("*.txt"))[0]))
pipeline.save("checkpoint")

"""A small GPT of bytes on a text that is part of Tidemill's source, in an ordinary PyTorch loop.

    python train.py              alone
    tidemill run job.yaml        on machines that come and go

Lines with (*) are Tidemill's. With determinism="bitwise" both end with the same weights, to the bit.
"""
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import tidemill.torch  # (*)

CONTEXT, WIDTH, HEADS, LAYERS = 64, 96, 4, 3


class Text(Dataset):
    """Windows of a text that do not overlap."""

    def __init__(self, path: Path) -> None:
        self.bytes = torch.frombuffer(bytearray(path.read_bytes()[:400_000]), dtype=torch.uint8).long()

    def __len__(self) -> int:
        return (len(self.bytes) - 1) // CONTEXT

    def __getitem__(self, i: int):
        window = self.bytes[i * CONTEXT: (i + 1) * CONTEXT + 1]
        return window[:-1], window[1:]


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


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.tokens(x) + self.places.weight[: x.shape[1]])))


job = tidemill.torch.init(steps=60, batch=32, micro_batch=4, seed=1, determinism="bitwise")  # (*)
model = Gpt()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=61)
job.attach(model, optimizer, scheduler, clip=1.0)  # (*)


@job.after_step
def show(step: int, loss: float) -> None:
    if step % 10 == 0 and job.is_main:
        print(f"step {step}: loss {loss:.3f}, {job.world_size} workers, generation {job.generation}", flush=True)


text = Path(__file__).resolve().parents[2] / "data" / "text"
for inputs, targets in job.batches(Text(sorted(text.glob("*.txt"))[0])):  # (*)
    with job.step() as step:  # (*)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        step.backward(loss)  # (*)

if job.done() and job.is_main:
    torch.save(model.state_dict(), "gpt.pt")

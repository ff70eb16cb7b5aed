"""The networks of these tests: an MLP, a CNN and a GPT, each a chain of layers.

Paced networks stand for devices of their own: each layer waits until the time it is given is over, forward and
backward, on a schedule that starts with the pass, so that late wake-ups do not add up. So four workers of a steady speed fit
on two processors, whatever else the machine does, and what is left to predict is what a profile is for: when gradients are
ready, in which buckets they leave, and what the links make of that. What the layers compute is small beside their pace.
"""

import time

import torch
from torch import nn


class _Pace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, schedule, index):
        ctx.schedule, ctx.index = schedule, index
        schedule.wait_forward(index)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        ctx.schedule.wait_backward(ctx.index)
        return gradient, None, None


class Schedule:
    """When each layer's pass ends, from the start of the whole pass."""

    def __init__(self, forward_ms, backward_ms):
        self.forward_s = [sum(forward_ms[: i + 1]) / 1e3 for i in range(len(forward_ms))]
        self.backward_s = [sum(backward_ms[i:]) / 1e3 for i in range(len(backward_ms))]
        self.start = 0.0

    @staticmethod
    def _until(deadline):
        left = deadline - time.perf_counter()
        if left > 0:
            time.sleep(left)

    def wait_forward(self, index):
        self._until(self.start + self.forward_s[index])

    def wait_backward(self, index):
        if index == len(self.backward_s) - 1:
            self.start = time.perf_counter()
        self._until(self.start + self.backward_s[index])


class Chain(nn.Module):
    """Layers one after the other; paced where times are given."""

    def __init__(self, layers, pace_ms=None):
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.schedule = None
        if pace_ms is not None:
            self.schedule = Schedule([p[0] for p in pace_ms], [p[1] for p in pace_ms])

    def forward(self, x):
        if self.schedule is None:
            return self.layers(x)
        self.schedule.start = time.perf_counter()
        for index, layer in enumerate(self.layers):
            x = _Pace.apply(layer(x), self.schedule, index)
        return x


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Tokens(nn.Module):
    def __init__(self, vocabulary, length, width):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(length, width)

    def forward(self, tokens):
        return self.token(tokens) + self.place(torch.arange(tokens.shape[1]))


def _mlp():
    return [
        nn.Sequential(nn.Linear(784, 1024), nn.ReLU()),
        nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()),
        nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()),
        nn.Linear(1024, 10),
    ]


def _cnn():
    def pair(first, second):
        return nn.Sequential(
            nn.Conv2d(first, second, 3, padding=1), nn.ReLU(), nn.Conv2d(second, second, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2),
        )

    return [pair(3, 32), pair(32, 64), pair(64, 128), pair(128, 256), nn.Flatten(), nn.Linear(256 * 4, 10)]


def _gpt():
    width = 192
    return [Tokens(256, 64, width), *[Block(width, 4) for _ in range(5)], nn.LayerNorm(width), nn.Linear(width, 256)]


# layers; pace of each layer, forward and backward; shape of a sample
NETS = {
    "mlp": (_mlp, [(8, 16), (10, 20), (10, 20), (2, 4)], "image"),
    "cnn": (_cnn, [(20, 40), (15, 30), (12, 24), (10, 20), (0, 0), (1, 2)], "picture"),
    "gpt": (_gpt, [(2, 4), *[(12, 24)] * 5, (1, 2), (4, 8)], "tokens"),
}


def make(name, paced):
    torch.manual_seed(1)
    layers, pace_ms, _ = NETS[name]
    model = Chain(layers(), pace_ms if paced else None)
    return model


def batch_of(name, size):
    """Inputs and targets, made up."""
    kind = NETS[name][2]
    if kind == "tokens":
        return torch.randint(0, 256, (size, 64)), torch.randint(0, 256, (size, 64))
    shape = (size, 784) if kind == "image" else (size, 3, 32, 32)
    return torch.randn(shape), torch.randint(0, 10, (size,))


def loss_of(out, target):
    return nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), target.reshape(-1))

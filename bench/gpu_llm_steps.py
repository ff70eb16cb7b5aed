"""Step times and memory of language models on a GPU, measured in the form that `tidemill predict --evaluate` reads.

    python bench/gpu_llm_steps.py --out FILE.csv [--part K/N] [--seconds 500] [--small]

Needs torch with CUDA, nothing else. Each row is one network (GPT or Llama form, bf16 autocast over fp32 weights, fused attention,
fused AdamW), one micro-batch, the medians of ten steps, and the peak of the memory that torch had in use. The networks are others
than those whose figures the program ships, but for three rows that say how far the two ways of measuring agree:

    tidemill predict --evaluate FILE.csv --gpu H200 --split untrained

--small tries the script itself without a GPU.
"""
import argparse
import statistics
import time
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

FIELDS = ("family", "layers", "hidden", "heads", "kv_heads", "ffn", "ctx", "vocab")
# network; micro-batches without more ado, with recomputation, compiled
CELLS = [
    (("gpt", 12, 768, 12, 12, 3072, 1024, 50257), [4], [], []),  # these are in what the program knows
    (("llama", 12, 768, 12, 12, 2048, 1024, 32000), [16], [], []),
    (("llama", 8, 4096, 32, 32, 11008, 4096, 32000), [1], [], []),
    (("gpt", 24, 1024, 16, 16, 4096, 1024, 50257), [1, 4, 16, 32], [16], [8]),
    (("gpt", 36, 1280, 20, 20, 5120, 1024, 50257), [1, 4, 16], [16], []),
    (("gpt", 24, 2048, 16, 16, 8192, 2048, 50257), [1, 4, 8], [8], []),
    (("llama", 22, 2048, 32, 4, 5632, 2048, 32000), [1, 4, 8], [8], [4]),
    (("llama", 24, 896, 14, 2, 4864, 4096, 151936), [1, 4], [4], []),
    (("llama", 28, 1536, 12, 2, 8960, 2048, 151936), [1, 4, 8], [8], []),
    (("llama", 8, 4096, 32, 8, 14336, 8192, 128256), [1, 2], [2], []),
    (("llama", 28, 3072, 24, 8, 8192, 2048, 128256), [1, 2, 4], [4], []),
    (("llama", 4, 8192, 64, 8, 28672, 4096, 32000), [1, 2], [2], []),
    (("gpt", 12, 768, 12, 12, 3072, 4096, 50257), [2, 8], [], []),
    (("gpt", 6, 5120, 40, 40, 20480, 2048, 50257), [1, 4], [], []),
]
SMALL = [(("gpt", 2, 64, 2, 2, 256, 32, 256), [2], [2], []), (("llama", 2, 64, 4, 2, 128, 32, 256), [2], [], [])]


class Attention(nn.Module):
    def __init__(self, net, bias):
        super().__init__()
        self.heads, self.kv_heads, self.size = net.heads, net.kv_heads, net.hidden // net.heads
        self.qkv = nn.Linear(net.hidden, (net.heads + 2 * net.kv_heads) * self.size, bias=bias)
        self.out = nn.Linear(net.hidden, net.hidden, bias=bias)

    def forward(self, x, turn=None):
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, -1, self.size).transpose(1, 2)
        q, k, v = parts.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        if turn is not None:
            q, k = turn(q), turn(k)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv_heads != self.heads)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class GptBlock(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(net.hidden), nn.LayerNorm(net.hidden)
        self.attention = Attention(net, bias=True)
        self.up, self.down = nn.Linear(net.hidden, net.ffn), nn.Linear(net.ffn, net.hidden)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(net.hidden), nn.RMSNorm(net.hidden)
        self.attention = Attention(net, bias=False)
        self.gate, self.up = (nn.Linear(net.hidden, net.ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(net.ffn, net.hidden, bias=False)
        size = net.hidden // net.heads
        angles = torch.outer(torch.arange(net.ctx).float(), 10000.0 ** (-torch.arange(0, size, 2).float() / size))
        self.register_buffer("cos", angles.cos().to(torch.bfloat16), persistent=False)
        self.register_buffer("sin", angles.sin().to(torch.bfloat16), persistent=False)

    def turn(self, x):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * self.cos - b * self.sin, b * self.cos + a * self.sin], dim=-1).to(x.dtype)

    def forward(self, x):
        x = x + self.attention(self.norm1(x), self.turn)
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, net, recompute):
        super().__init__()
        gpt = net.family == "gpt"
        self.token = nn.Embedding(net.vocab, net.hidden)
        self.place = nn.Embedding(net.ctx, net.hidden) if gpt else None
        self.blocks = nn.ModuleList([(GptBlock if gpt else LlamaBlock)(net) for _ in range(net.layers)])
        self.norm = nn.LayerNorm(net.hidden) if gpt else nn.RMSNorm(net.hidden)
        self.head = nn.Linear(net.hidden, net.vocab, bias=False)
        if gpt:
            self.head.weight = self.token.weight
        self.recompute = recompute

    def forward(self, tokens):
        x = self.token(tokens)
        if self.place is not None:
            x = x + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(self.norm(x))


class Clock:
    """Moments on the device, without waiting for it."""

    def __init__(self, cuda):
        self.cuda = cuda

    def now(self):
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_ms(self, a, b):
        return a.elapsed_time(b) if self.cuda else (b - a) * 1e3


def measure(net, micro_batch, recompute, compiled, device):
    """Medians of forward, backward and optimizer in ms, the peak in GiB, and how many parameters there are."""
    torch.manual_seed(0)
    cuda = device == "cuda"
    with torch.device(device):
        whole = Decoder(net, recompute)
        tokens = torch.randint(0, net.vocab, (micro_batch, net.ctx + 1))
    model = torch.compile(whole) if compiled else whole
    optimizer = torch.optim.AdamW(whole.parameters(), lr=1e-4, fused=cuda)
    clock, rows = Clock(cuda), []
    for turn in range(14):
        if cuda and turn == 4:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        marks = [clock.now()]
        with torch.autocast(device, dtype=torch.bfloat16):
            out = model(tokens[:, :-1])
            loss = functional.cross_entropy(out.flatten(0, 1), tokens[:, 1:].flatten())
        del out
        marks.append(clock.now())
        loss.backward()
        marks.append(clock.now())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        marks.append(clock.now())
        del loss
        if turn >= 4:
            rows.append(marks)
    if cuda:
        torch.cuda.synchronize()
    medians = [statistics.median(clock.between_ms(m[i], m[i + 1]) for m in rows) for i in range(3)]
    peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else 0
    return medians, peak, sum(p.numel() for p in whole.parameters())


def cells_of(table):
    for net, plain, recompute, compiled in table:
        for kind, sizes in ((0, plain), (1, recompute), (2, compiled)):
            yield from ((net, size, kind == 1, kind == 2) for size in sizes)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--out", required=True)
    words.add_argument("--part", default="1/1")
    words.add_argument("--seconds", type=float, default=500)
    words.add_argument("--small", action="store_true")
    words = words.parse_args()
    device = "cuda" if torch.cuda.is_available() and not words.small else "cpu"
    part, parts = (int(n) for n in words.part.split("/"))
    began = time.monotonic()
    torch.set_float32_matmul_precision("high")
    with open(words.out, "w", encoding="utf-8") as file:
        print(",".join(FIELDS) + ",params,precision,recompute,compile,micro_batch,fwd_ms,bwd_ms,opt_ms,peak_gib", file=file)
        for i, (net, size, recompute, compiled) in enumerate(cells_of(SMALL if words.small else CELLS)):
            if i % parts != part - 1:
                continue
            if time.monotonic() - began > words.seconds:
                print("no time for the rest", flush=True)
                break
            try:
                times, peak, count = measure(SimpleNamespace(**dict(zip(FIELDS, net))), size, recompute, compiled, device)
            except torch.cuda.OutOfMemoryError:
                print("does not fit:", net, size, flush=True)
                torch.cuda.empty_cache()
                continue
            row = [*net, count, "bf16", int(recompute), int(compiled), size, *(f"{t:.2f}" for t in times), f"{peak:.2f}"]
            print(*row, sep=",", file=file, flush=True)
            print(*row, sep=",", flush=True)
            if device == "cuda":
                torch.cuda.empty_cache()
                torch._dynamo.reset()


if __name__ == "__main__":
    main()

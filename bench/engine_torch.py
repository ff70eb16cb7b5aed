"""The built-in engine and PyTorch's CPU eager mode side by side: the same network, one thread, turn by turn.

Use: engine_torch.py BENCH_ENGINE [ROUNDS]
Figures are tokens a CPU second (best step of all rounds), so that other work on the machine shows little; the ratio
counts. Both sides train on batches of the same shape with AdamW and clipping.
"""
import re
import subprocess
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
bench, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(C, 2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout)
        x = x + F.dropout(self.c_proj(a.transpose(1, 2).reshape(B, T, C)), self.dropout)
        h = F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")
        return x + F.dropout(self.c_out(h), self.dropout)


class GPT(nn.Module):
    def __init__(self, layers, width, heads, ctx, dropout):
        super().__init__()
        self.dropout = dropout
        self.wte, self.wpe = nn.Embedding(256, width), nn.Embedding(ctx, width)
        self.h = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = F.dropout(self.wte(tokens) + self.wpe.weight, self.dropout)
        for block in self.h:
            x = block(x)
        return F.cross_entropy((self.ln_f(x) @ self.wte.weight.T).view(-1, 256), targets.view(-1))


def torch_steps(model, adamw, batch, ctx, steps):
    times = []
    for _ in range(steps):
        tokens = torch.randint(256, (batch, ctx))
        start = time.process_time()
        adamw.zero_grad()
        model(tokens, tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        times.append(time.process_time() - start)
    return times


print(f"PyTorch {torch.__version__}, one thread each")
print(f"{'network':<14} {'dropout':>7} {'PyTorch':>9} {'bitwise':>9} {'fast':>9} {'ratio':>7} {'fast':>7} {'of sgemm':>9}")
for layers, width, heads, batch, dropout, steps in ((6, 384, 6, 8, 0.0, 5), (6, 384, 6, 8, 0.1, 5), (12, 768, 12, 4, 0.0, 3)):
    ctx = 128
    model = GPT(layers, width, heads, ctx, dropout)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch_steps(model, adamw, batch, ctx, 1)
    theirs, ours = [], {"bitwise": 0.0, "fast": 0.0}
    share = 0.0
    for _ in range(rounds):
        theirs += torch_steps(model, adamw, batch, ctx, steps)
        out = subprocess.run([bench, str(layers), str(width), str(heads), str(ctx), str(batch), "1", str(dropout), "1x1",
                              str(steps + 1), "sgemm", "bitwise", "fast"], check=True, capture_output=True, text=True).stdout
        rates = {m[1]: float(m[2]) for m in re.finditer(r"^(\w+) .* ([\d.]+) GFLOP/s", out, re.M)}
        for m in re.finditer(r"^(bitwise|fast) +([\d.]+) best", out, re.M):
            ours[m[1]] = max(ours[m[1]], float(m[2]))
        share = max(share, rates["bitwise"] / rates["sgemm"])
    torch_rate = batch * ctx / min(theirs)
    print(f"{layers:>2} x {width:<9} {dropout:>7} {torch_rate:9.0f} {ours['bitwise']:9.0f} {ours['fast']:9.0f} "
          f"{ours['bitwise'] / torch_rate:6.2f}x {ours['fast'] / torch_rate:6.2f}x {share:8.0%}", flush=True)
    del model, adamw

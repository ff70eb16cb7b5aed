"""The engine against PyTorch: the same network from the same start on the same samples.

Compared: every gradient of the first step, the losses and weights of 100 AdamW steps with clipping and a schedule, and
that Hugging Face's safetensors loads what we write. Tolerances are those of fp32: PyTorch runs in double here, so the
whole difference is ours.
  gradients   1e-5 of the largest of the tensor (sums of some hundred products, rounded to 6e-8 each)
  losses      2e-4 over all 100 steps
  weights     rms difference below 0.2 % of the rms change since the start
The bias of attention's keys is left out: softmax does not depend on it, its true gradient is 0, and AdamW turns the
rounding error of that into steps of full size, in PyTorch's fp32 as in ours.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file
except ImportError:
    print("torch or safetensors is missing: run make venv again")
    sys.exit(1)

tidemill, root = sys.argv[1], sys.argv[2]
L, C, H, T, BATCH, MICRO, STEPS, SEED = 3, 64, 4, 32, 8, 4, 100, 5
LR, WARMUP, DECAY_TO, LR_MIN, CLIP, DECAY = 2e-3, 10, 100, 2e-4, 1.0, 0.1
torch.set_num_threads(1)
M32 = 0xFFFFFFFF


def philox(c, k):
    c, k = list(c), list(k)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & M32, (a >> 32) ^ c[3] ^ k[1], a & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


def window(seed, count, index):
    """The keyed permutation of samples, written anew from its description in doc/engine.md."""
    half = 1
    while 1 << 2 * half < count:
        half += 1
    epoch, x = index // count, index % count
    while True:
        left, right = x >> half, x & ((1 << half) - 1)
        for r in range(6):
            bits = philox([right, epoch & M32, (epoch >> 32) ^ (r << 24), 0x0D3E7000], [seed & M32, seed >> 32])[0]
            left, right = right, left ^ (bits & ((1 << half) - 1))
        x = left << half | right
        if x < count:
            return x


def loss_of(w, tokens, targets):
    x = w["wte.weight"][tokens] + w["wpe.weight"]
    B = tokens.shape[0]
    for i in range(L):
        p = f"h.{i}."
        n = F.layer_norm(x, (C,), w[p + "ln_1.weight"], w[p + "ln_1.bias"])
        q, k, v = (n @ w[p + "attn.c_attn.weight"] + w[p + "attn.c_attn.bias"]).split(C, 2)
        q, k, v = (t.view(B, T, H, C // H).transpose(1, 2) for t in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + a @ w[p + "attn.c_proj.weight"] + w[p + "attn.c_proj.bias"]
        n = F.layer_norm(x, (C,), w[p + "ln_2.weight"], w[p + "ln_2.bias"])
        h = F.gelu(n @ w[p + "mlp.c_fc.weight"] + w[p + "mlp.c_fc.bias"], approximate="tanh")
        x = x + h @ w[p + "mlp.c_proj.weight"] + w[p + "mlp.c_proj.bias"]
    x = F.layer_norm(x, (C,), w["ln_f.weight"], w["ln_f.bias"])
    return F.cross_entropy((x @ w["wte.weight"].T).view(-1, 256), targets.reshape(-1))


def rate(step):
    if step < WARMUP:
        return LR * (step + 1) / (WARMUP + 1)
    done = (step - WARMUP) / (DECAY_TO - WARMUP)
    return LR_MIN + 0.5 * (1 + math.cos(math.pi * done)) * (LR - LR_MIN)


def train(folder, steps, lr, layout):
    job = os.path.join(folder, "job.yaml")
    with open(job, "w") as f:
        f.write(f"model: {{gpt: {{layers: {L}, hidden: {C}, heads: {H}, ctx: {T}}}}}\ndata: kjv-new-testament\n"
                f"batch: {BATCH}\nmicro_batch: {MICRO}\nsteps: {steps}\nseed: {SEED}\n"
                f"optimizer: {{lr: {lr}, clip: {CLIP}, weight_decay: {DECAY}}}\n"
                f"schedule: {{warmup: {WARMUP}, decay_to: {DECAY_TO}, lr_min: {LR_MIN if lr else 0}}}\n")
    out = os.path.join(folder, f"run-{lr}")
    done = subprocess.run([tidemill, "train", job, "--layout", layout, "--checkpoint", out, "--json"], check=True,
                          capture_output=True, text=True)
    here = os.path.join(out, f"step-{steps:08d}")
    tensors = []
    for kind in ("model", "optimizer"):
        with open(os.path.join(here, kind + ".safetensors.index.json")) as f:
            shards = sorted(set(json.load(f)["weight_map"].values()))
        tensors.append({k: v for s in shards for k, v in load_file(os.path.join(here, s)).items()})
    return json.loads(done.stdout), *tensors


def rms(x):
    return float(x.pow(2).mean().sqrt())


def without_key_bias(name, x):
    return torch.cat([x[:C], x[2 * C:]]) if name.endswith("c_attn.bias") else x


with open(os.path.join(root, "data/text/kjv-new-testament.txt"), "rb") as f:
    text = np.frombuffer(f.read(), dtype=np.uint8).astype(np.int64)
count = (len(text) - 1) // T


def batch(step):
    rows = [window(SEED, count, step * BATCH + j) * T for j in range(BATCH)]
    return (torch.tensor(np.stack([text[r:r + T] for r in rows])),
            torch.tensor(np.stack([text[r + 1:r + T + 1] for r in rows])))


bad = []
with tempfile.TemporaryDirectory() as folder:
    _, start, first = train(folder, 1, 0, "1x1")  # rate 0: weights as at the start, moments of one gradient
    result, end, _ = train(folder, STEPS, LR, "2x2")

weights = {k: v.double().requires_grad_() for k, v in start.items()}
begun = {k: v.double() for k, v in start.items()}
groups = [{"params": [v for v in weights.values() if v.dim() == 2], "weight_decay": DECAY},
          {"params": [v for v in weights.values() if v.dim() == 1], "weight_decay": 0}]
adamw = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)
worst_loss = worst_gradient = 0
losses = []
for step in range(STEPS):
    for group in adamw.param_groups:
        group["lr"] = rate(step)
    adamw.zero_grad()
    loss = loss_of(weights, *batch(step))
    loss.backward()
    norm = float(torch.nn.utils.clip_grad_norm_(weights.values(), CLIP))
    if step == 0:
        for name, w in weights.items():
            got = first[name + ".moment1"].double() / 0.1
            want = w.grad
            apart = float((without_key_bias(name, got) - without_key_bias(name, want)).abs().max() / want.abs().max())
            worst_gradient = max(worst_gradient, apart)
            if apart > 1e-5:
                bad.append(f"gradient of {name} is {apart:.2e} off")
    adamw.step()
    losses.append(loss.item())
    worst_loss = max(worst_loss, abs(loss.item() - result["losses"][step]))
if worst_loss > 2e-4:
    bad.append(f"a loss is {worst_loss:.2e} off")
if not losses[-1] < losses[0] - 2:
    bad.append(f"PyTorch's loss did not fall: {losses[0]} to {losses[-1]}")
worst_weight = 0
for name, w in weights.items():
    want = without_key_bias(name, w.detach())
    apart = rms(without_key_bias(name, end[name].double()) - want) / rms(want - without_key_bias(name, begun[name]))
    worst_weight = max(worst_weight, apart)
    if apart > 0.002:
        bad.append(f"weights of {name} are {apart:.2e} of their change off")
print(f"engine and PyTorch: gradients within {worst_gradient:.1e}, losses within {worst_loss:.1e} over {STEPS} steps "
      f"({losses[0]:.3f} to {losses[-1]:.3f}), weights within {worst_weight:.1e} of their change")
for line in bad:
    print(line)
sys.exit(1 if bad else 0)

"""Profiles on a GPU: predicted step times of batch sizes that were not profiled, and what a profile costs.

    python bench/gpu_profile.py [--seconds 240] [--only resnet50-fp32] [--out FILE.json]

Needs torch with CUDA and this repository, nothing installed. GPT-2 (124 M) and a ResNet-50, in bf16 autocast and in fp32,
are profiled at three batch sizes (tidemill.profile); other sizes are timed by a plain loop without any hook and compared
with what `tidemill predict --workers 1` says, where build/release/tidemill runs here; else with the same curve fitted in
this file, and the output says so. Without a GPU small networks run on the processors, to try the script itself.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))
import torch  # noqa: E402
from torch import nn  # noqa: E402

from tidemill import profiler  # noqa: E402

STARTED = time.monotonic()


# ---- networks ----


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, width, heads, length, vocabulary):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.short = nn.Identity()
        if stride != 1 or inside != out:
            self.short = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.last = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.last(self.body(x) + self.short(x))


def resnet(depths, width):
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]  # fmt: skip
    inside = width
    for stage, depth in enumerate(depths):
        for block in range(depth):
            layers.append(Bottleneck(inside, width << stage, 2 if stage > 0 and block == 0 else 1))
            inside = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))


def gpt_batch(size, length, vocabulary, device):
    tokens = torch.randint(0, vocabulary, (size, length + 1), device=device)
    return tokens[:, :-1], tokens[:, 1:]


def image_batch(size, side, device):
    return torch.randn(size, 3, side, side, device=device), torch.randint(0, 1000, (size,), device=device)


def jobs(cuda, device):
    """Name, maker of the model, maker of a batch, precision, batches profiled, batches predicted."""
    if not cuda:
        small = lambda: GPT(2, 64, 2, 32, 128)  # noqa: E731
        return [("gpt-small", small, lambda n: gpt_batch(n, 32, 128, device), "fp32", [2, 8, 32], [4, 16])]
    gpt = lambda: GPT(12, 768, 12, 1024, 50257)  # noqa: E731
    images = lambda: resnet([3, 4, 6, 3], 64)  # noqa: E731
    return [
        ("gpt2-124m", gpt, lambda n: gpt_batch(n, 1024, 50257, device), "bf16", [2, 8, 32], [1, 4, 12, 16, 24, 48]),
        ("resnet50", images, lambda n: image_batch(n, 224, device), "bf16", [16, 64, 256], [32, 96, 128, 192]),
        ("gpt2-124m", gpt, lambda n: gpt_batch(n, 1024, 50257, device), "fp32", [1, 4, 12], [2, 6, 8]),
        ("resnet50", images, lambda n: image_batch(n, 224, device), "fp32", [8, 32, 128], [16, 64, 96]),
    ]


# ---- running ----


class Job:
    def __init__(self, job, device):
        self.name, make, self.batch_of, self.precision, self.profiled, self.held_out = job
        torch.manual_seed(0)
        self.device = device
        self.model = make().to(device)
        fused = device.type == "cuda"
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=fused)

    def step(self, inputs, targets):
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            out = self.model(inputs)
            loss = nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), targets.reshape(-1))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def sync(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def plain_ms(self, size, least=10, most=40, seconds=2.5):
        """Median over five stretches of a plain loop: nothing of ours in it."""
        inputs, targets = self.batch_of(size)
        for _ in range(5):
            self.step(inputs, targets)
        self.sync()
        begin = time.perf_counter()
        self.step(inputs, targets)
        self.sync()
        one = time.perf_counter() - begin
        count = max(least, min(most, int(seconds / max(one, 1e-4))))
        stretches = []
        for _ in range(5):
            self.sync()
            begin = time.perf_counter()
            for _ in range(max(2, count // 5)):
                self.step(inputs, targets)
            self.sync()
            stretches.append((time.perf_counter() - begin) * 1e3 / max(2, count // 5))
        return statistics.median(stretches)

    def profile(self, size, iterations=32):
        inputs, targets = self.batch_of(size)
        with profiler.profile(self.model, self.optimizer, iterations=iterations, path=None, name=self.name) as profile:
            while not profile.done:
                self.step(inputs, targets)
        return profile.result()

    def overhead_percent(self, size, rounds=5, iterations=40):
        """Timed iterations with a profile against as many without, in turns: what a user pays while it lasts."""
        inputs, targets = self.batch_of(size)
        ratios = []
        for _ in range(rounds):
            with profiler.profile(self.model, self.optimizer, iterations=iterations, path=None) as profile:
                while profile.index < 1 + profiler.WARMUP:
                    self.step(inputs, targets)
                self.sync()
                begin = time.perf_counter()
                for _ in range(iterations):
                    self.step(inputs, targets)
                self.sync()
                watched = time.perf_counter() - begin
            self.sync()
            begin = time.perf_counter()
            for _ in range(iterations):
                self.step(inputs, targets)
            self.sync()
            ratios.append(watched / (time.perf_counter() - begin))
        return 100 * (statistics.median(ratios) - 1)


# ---- predictions ----


def find_program():
    path = os.path.join(ROOT, "build", "release", "tidemill")
    try:
        subprocess.run([path, "--version"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return path
    except (OSError, subprocess.CalledProcessError):
        return None


def merge(results):
    """One profile of several batches: the largest one's layers and gradients, everybody's steps."""
    texts = [profiler.print_profile(result, "bench") for result in results]
    row = lambda text: text.split("[step]\n")[1].split("\n")[1]  # noqa: E731
    return texts[-1].replace(row(texts[-1]), "\n".join(row(text) for text in texts))


def ask_program(program, path, precision, size):
    words = [program, "predict", "--profile", path, "--workers", "1", "--micro-batch", str(size), "--precision", precision]
    answer = subprocess.run([*words, "--json"], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(answer)["predictions"][0]["step_ms"]["mean"]


def fit_curve(results):
    """step(b) = (floor^p + (base + slope b)^p)^(1/p) through what was profiled, as src/workload/compute.h has it."""
    points = [(r["micro_batch"], r["step_ms"]) for r in results]

    def curve(x, size):
        floor, base, slope = (math.exp(v) for v in x)
        return (floor**6.4 + (base + slope * size) ** 6.4) ** (1 / 6.4)

    smallest, largest = points[0], points[-1]
    start = [math.log(smallest[1]), math.log(smallest[1] / 4), math.log(largest[1] / largest[0])]

    def cost(x):
        fit = sum(math.log(curve(x, size) / ms) ** 2 for size, ms in points) / 0.03**2
        return fit + sum(((a - b) / s) ** 2 for a, b, s in zip(x, start, (0.3, 1.0, 0.5)))

    best, step = list(start), 0.2
    while step > 1e-4:  # coordinate search: three unknowns
        moved = False
        for i in range(3):
            for sign in (-1, 1):
                trial = list(best)
                trial[i] += sign * step
                if cost(trial) < cost(best):
                    best, moved = trial, True
        if not moved:
            step /= 2
    return lambda size: curve(best, size)


# ---- the whole ----


def run_job(job, program, folder, deadline):
    results, rows = [], []
    for size in job.profiled:
        result = job.profile(size)
        results.append(result)
        print(f"{job.name} {job.precision} batch {size:4}: profiled {result['step_ms']:8.2f} ms a step (forward "
              f"{result['forward_ms']:.2f}, backward {result['backward_ms']:.2f}, optimizer {result['optimizer_ms']:.2f}, "
              f"other {result['data_ms'] + result['other_ms']:.2f}), {result['peak_gib']:.1f} GiB", flush=True)  # fmt: skip
    path = os.path.join(folder, f"{job.name}-{job.precision}.tmprofile")
    with open(path, "w", encoding="utf-8") as file:
        file.write(merge(results))
    precision = results[0]["precision"]
    predict = fit_curve(results)
    if program is not None:
        predict = lambda size: ask_program(program, path, precision, size)  # noqa: E731
    for size in job.held_out:
        if time.monotonic() > deadline:
            print("out of time: the rest is left out")
            break
        try:
            measured = job.plain_ms(size)
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            print(f"{job.name} {job.precision} batch {size:4}: does not fit")
            continue
        predicted = predict(size)
        error = 100 * (predicted / measured - 1)
        rows.append({"network": job.name, "precision": precision, "batch": size, "measured_ms": measured,
                     "predicted_ms": predicted, "error_percent": error})  # fmt: skip
        print(f"{job.name} {job.precision} batch {size:4}: measured {measured:8.2f} ms, predicted {predicted:8.2f} ms, "
              f"{error:+5.1f}%", flush=True)  # fmt: skip
    return rows, open(path, encoding="utf-8").read()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=240, help="no new measurement after that")
    parser.add_argument("--out", help="results as JSON")
    parser.add_argument("--only", help="one of the jobs, such as resnet50-fp32")
    given = parser.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    program = find_program()
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name() if cuda else 'processors'}; predictions by "
          f"{'tidemill predict' if program else 'the curve in this file (build/release/tidemill does not run here)'}")  # fmt: skip
    deadline = STARTED + given.seconds
    rows, overheads, profiles = [], [], {}
    with tempfile.TemporaryDirectory() as folder:
        for description in jobs(cuda, device):
            if given.only and given.only != f"{description[0]}-{description[3]}":
                continue
            if time.monotonic() > deadline:
                print(f"out of time: {description[0]} {description[3]} is left out")
                continue
            job = Job(description, device)
            more, profiles[f"{job.name}-{job.precision}"] = run_job(job, program, folder, deadline)
            rows += more
            if time.monotonic() < deadline:
                size = job.profiled[1]
                overheads.append((job.name, job.precision, size, job.overhead_percent(size)))
                print(f"{job.name} {job.precision} batch {size:4}: a profile costs {overheads[-1][3]:+.2f}% while it lasts",
                      flush=True)  # fmt: skip
            del job
            if cuda:
                torch.cuda.empty_cache()
    errors = [abs(row["error_percent"]) for row in rows]
    if errors:
        print(f"MAPE {statistics.mean(errors):.1f}% over {len(errors)} batches not profiled "
              f"(median {statistics.median(errors):.1f}%, worst {max(errors):.1f}%)")  # fmt: skip
    if overheads:
        print(f"overhead of a profile: worst {max(o[3] for o in overheads):+.2f}%")
    print(f"{time.monotonic() - STARTED:.0f} s")
    if given.out:
        with open(given.out, "w", encoding="utf-8") as file:
            json.dump({"rows": rows, "overhead_percent": overheads, "profiles": profiles}, file, indent=1)


if __name__ == "__main__":
    main()

"""A loop of Accelerate's tutorial, with the two changed lines. train_accelerate.py OUT [--plain]"""
import argparse
import os

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

import patterns
from train_small import Gate

EPOCHS, ACCUMULATION = 3, 4


def train(plain=False, gate=None):
    watch = Gate(gate)
    if plain:
        from accelerate import Accelerator
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION)
        torch.manual_seed(5)
    else:
        from tidemill.torch.accelerate import Accelerator
        accelerator = Accelerator(cpu=True, steps=15, batch=8, gradient_accumulation_steps=ACCUMULATION, seed=5,
                                  determinism="bitwise")
        accelerator.job.after_step(lambda step, loss: print(f"applied {step} of {accelerator.job.world_size}", flush=True))
    model = patterns.net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=15)
    loader = DataLoader(patterns.Points(), batch_size=2)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for epoch in range(EPOCHS):
        model.train()
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                if not plain:
                    watch.wait(accelerator.job.committed_step + 1, lambda: accelerator.job.step().cancelled)
                accelerator.backward(F.cross_entropy(model(inputs), targets))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        model.eval()
        accelerator.print(f"epoch {epoch}")
    accelerator.end_training()
    return accelerator, model


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--gate")
    words = parser.parse_args()
    done, net = train(gate=words.gate)
    if done.job.has_result:
        torch.save(net.state_dict(), f"{words.out}-{os.environ.get('TIDEMILL_INSTANCE_ID', '0')}")

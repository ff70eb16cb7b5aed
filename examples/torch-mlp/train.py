"""A classifier of handwriting-like digits, in an ordinary PyTorch loop. Lines with (*) are Tidemill's.

    python train.py              alone
    tidemill run job.yaml        on machines that come and go; determinism="bitwise": to the same bits
"""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import tidemill.torch  # (*)


def digits(count: int = 4000) -> TensorDataset:
    """Ten prototypes of 8 x 8 pixels with noise: no download."""
    g = torch.Generator().manual_seed(7)
    prototypes = torch.rand(10, 64, generator=g)
    labels = torch.randint(0, 10, (count,), generator=g)
    return TensorDataset(prototypes[labels] + 0.4 * torch.randn(count, 64, generator=g), labels)


job = tidemill.torch.init(steps=300, batch=64, micro_batch=8, seed=1, determinism="bitwise")  # (*)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300)
job.attach(model, optimizer, scheduler)  # (*)

train_set = digits()
for inputs, labels in job.batches(train_set):  # (*)
    with job.step() as step:  # (*)
        loss = F.cross_entropy(model(inputs), labels)
        step.backward(loss)  # (*) instead of loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()

if job.done():
    model.eval()
    inputs, labels = train_set.tensors
    accuracy = (model(inputs).argmax(1) == labels).float().mean()
    print(f"loss {job.last_loss:.4f}, accuracy {accuracy:.1%}")
    if job.is_main:
        torch.save(model.state_dict(), "digits.pt")

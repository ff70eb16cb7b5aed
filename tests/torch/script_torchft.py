"""A script for torchft, in the style of its example; check_foreign.py ports it."""
import os
from datetime import timedelta

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
from torchft import DistributedDataParallel, DistributedSampler, Manager, Optimizer, ProcessGroupGloo

STEPS = 16


def endless(loader):
    while True:
        yield from loader


def main():
    group, groups = int(os.environ.get("REPLICA_GROUP_ID", 0)), int(os.environ.get("NUM_REPLICA_GROUPS", 2))
    draw = torch.Generator().manual_seed(5)
    trainset = TensorDataset(torch.randn(96, 12, generator=draw), torch.randint(0, 3, (96,), generator=draw))
    sampler = DistributedSampler(trainset, replica_rank=group, num_replica_groups=groups, group_rank=0, num_replicas=1)
    trainloader = DataLoader(trainset, batch_size=4, sampler=sampler)

    def load_state_dict(state):
        m.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optim"])

    def state_dict():
        return {"model": m.state_dict(), "optim": optimizer.state_dict()}

    manager = Manager(pg=ProcessGroupGloo(timeout=timedelta(seconds=5)), min_replica_size=1, load_state_dict=load_state_dict,
                      state_dict=state_dict, replica_id=f"train_{group}", timeout=timedelta(seconds=10))
    m = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3))
    m = DistributedDataParallel(manager, m)
    optimizer = Optimizer(manager, optim.AdamW(m.parameters(), lr=1e-2))
    criterion = nn.CrossEntropyLoss()
    for inputs, labels in endless(trainloader):
        optimizer.zero_grad()  # begins a quorum
        loss = criterion(m(inputs), labels)
        loss.backward()
        optimizer.step()
        if manager.current_step() >= STEPS:
            break


if __name__ == "__main__":
    main()

"""Random numbers by what they are for."""

from __future__ import annotations

import random
import sys

import torch


def seed_all(key: int) -> None:
    """Seeds torch, Python's random and NumPy. (torch.manual_seed is slow before CUDA is used: it keeps a stack trace.)"""
    torch.default_generator.manual_seed(key)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(key)
    random.seed(key)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(key & 0xFFFFFFFF)

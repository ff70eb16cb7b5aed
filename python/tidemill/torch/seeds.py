"""Random numbers keyed by purpose."""

from __future__ import annotations

import contextlib
import random
import sys
from typing import Iterator

import torch


def seed_all(key: int) -> None:
    """Seeds torch, Python's random and NumPy. (torch.manual_seed is slow before CUDA is used: it keeps a stack trace.) Called
    for every sample, so devices are seeded one by one, without asking each time how many there are."""
    torch.default_generator.manual_seed(key)
    if torch.cuda.is_initialized():
        for generator in torch.cuda.default_generators:
            generator.manual_seed(key)
    random.seed(key)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(key & 0xFFFFFFFF)


@contextlib.contextmanager
def kept_random_numbers() -> Iterator[None]:
    """Afterwards all of them go on where they were."""
    numpy = sys.modules.get("numpy")
    torch_state, python_state = torch.default_generator.get_state(), random.getstate()
    numpy_state = numpy.random.get_state() if numpy is not None else None
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        torch.default_generator.set_state(torch_state)
        random.setstate(python_state)
        if numpy is not None and numpy_state is not None:
            numpy.random.set_state(numpy_state)
        if cuda_states is not None:
            torch.cuda.set_rng_state_all(cuda_states)

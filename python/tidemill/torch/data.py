"""Micro-batches of a map-style data set, in the job's order, with random numbers keyed by what they are for."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from tidemill import samples
from tidemill.errors import UsageError
from tidemill.torch.seeds import seed_all

_DATA = 1  # a purpose of random numbers


class _Keyed(Dataset):
    """The data set, asked by (key, item): augmentation draws the same numbers wherever an item is loaded."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, place: Tuple[int, int]) -> Any:
        seed_all(place[0])
        return self._dataset[place[1]]


class _Order:
    """A sampler of batches: this worker's micro-batches from a step on."""

    def __init__(self, owner: "MicroBatches", first: Tuple[int, int]) -> None:
        self._owner, self._first = owner, first

    def __iter__(self) -> Iterator[List[Tuple[int, int]]]:
        step, number = self._first
        while step <= self._owner.steps:
            for m in self._owner.share:
                if m >= number:
                    yield self._owner.places(step, m)
            step, number = step + 1, 0


class MicroBatches:
    """Loads what is asked for; with processes that load ahead, as long as it is asked for in order."""

    def __init__(self, dataset: Any, collate: Optional[Callable[[List[Any]], Any]], workers: int, seed: int, batch: int,
                 micro_batch: int, steps: int) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise UsageError(f"{type(dataset).__name__} is not a map-style data set (with __len__ and __getitem__): "
                             "Tidemill has to name the samples of a step, whoever computes them")
        self.count = len(dataset)
        if self.count == 0:
            raise UsageError("the data set is empty")
        self._dataset = _Keyed(dataset)
        self._collate = collate or default_collate
        self._workers, self._seed = workers, seed
        self._batch, self._micro_batch, self.steps = batch, micro_batch, steps
        self.share: Sequence[int] = ()
        self._ahead: Optional[Iterator[Any]] = None
        self._expected: Optional[Tuple[int, int]] = None

    def places(self, step: int, number: int) -> List[Tuple[int, int]]:
        """(key of its random numbers, item) of each sample of a micro-batch."""
        items = samples.micro_batch_items(self._seed, self.count, self._batch, self._micro_batch, step, number)
        first = number * self._micro_batch
        return [(samples.key_of(self._seed, step, first + j, _DATA), item) for j, item in enumerate(items)]

    def begin(self, share: Sequence[int]) -> None:
        """A new generation: another share."""
        self.share = share
        self.restart()

    def restart(self) -> None:
        """What was loaded ahead is thrown away."""
        self._ahead = None
        self._expected = None

    def get(self, step: int, number: int) -> Any:
        """A micro-batch of this worker's share, collated."""
        if self._workers == 0:
            return self._collate([self._dataset[place] for place in self.places(step, number)])
        if self._expected != (step, number):
            self._ahead = iter(DataLoader(self._dataset, batch_sampler=_Order(self, (step, number)),  # type: ignore
                                          num_workers=self._workers, collate_fn=self._collate))
        assert self._ahead is not None
        out = next(self._ahead)
        following = [m for m in self.share if m > number]
        self._expected = (step, following[0]) if following else (step + 1, self.share[0])
        return out

    def close(self) -> None:
        """Ends the processes that load."""
        self._ahead = None

"""Micro-batches in the job's order, with random numbers keyed by purpose.

A map-style data set is asked for the items of a micro-batch (MicroBatches). A stream (IterableDataset) is read in its order by
every worker, which uses the items of its own micro-batches and passes over the others (Stream): which item is which sample of
the job follows from its place in the stream, so each is used once, whoever is lost. Where processes load it (num_workers), or it makes its
batches itself (batch_size=None), what is counted are its batches, in the order in which the DataLoader gives them (StreamOfBatches)."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import warnings
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Protocol, Sequence, Tuple

import torch
from torch.utils.data import (DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler,
                              default_collate)

from tidemill import samples
from tidemill.errors import UsageError
from tidemill.torch.agreement import Print, mark_of, print_of
from tidemill.torch.plain import from_plain, to_plain
from tidemill.torch.replicas import ORDER, OTHER_SAMPLES, SAMPLES
from tidemill.torch.seeds import seed_all
from tidemill.torch.generators import generators_in

_DATA, _ORDER, _STREAM, _COLLATE = 1, 3, 4, 5  # purposes of random numbers
_EPOCHS_KEPT = 2  # orders of a sampler
_POSITION_BYTES = 1 << 14  # of a stream's state
_TRIES = 4  # commits of this process at which a stream must continue where its state was taken; at one it may by chance


_SHARING = {"RANK": "0", "WORLD_SIZE": "1", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}


@contextlib.contextmanager
def _as_one_process() -> Iterator[None]:
    """For a stream that shares itself out by these variables (WebDataset's split_by_node): which samples are whose is Tidemill's part, and
    every worker must see all of them, in one order. Processes that load are started inside, and keep it."""
    kept = {name: os.environ[name] for name, alone in _SHARING.items() if os.environ.get(name, alone) != alone}
    if not kept:
        yield
        return
    os.environ.update({name: _SHARING[name] for name in kept})
    try:
        yield
    finally:
        os.environ.update(kept)


class Source(Protocol):
    """Where micro-batches come from."""

    count: Optional[int]  # items of an epoch; None: not known

    def begin(self, share: Sequence[int]) -> None:
        """A new generation: another share."""

    def restart(self) -> None:
        """The step is done again."""

    def get(self, step: int, number: int) -> Any:
        """A micro-batch of this worker's share, collated."""

    def commit(self, step: int) -> None:
        """The step is committed."""

    def marks(self, step: int) -> Dict[str, Any]:
        """What this worker has seen of the step's data that all must see alike (tidemill.torch.replicas)."""

    def generators(self) -> List[Any]:
        """Of random numbers, that nobody else may seed."""

    def close(self) -> None:
        """Ends what loads."""


def open_source(job: Any, dataset: Any, collate: Any, workers: int, sampler: Any, shuffle: bool) -> Source:
    """For what `Job.batches` was given."""
    dataset = _loader_in(dataset)
    options: Dict[str, Any] = {}
    if isinstance(dataset, DataLoader):
        loader = dataset
        if isinstance(loader.dataset, IterableDataset) and (loader.num_workers or loader.batch_size is None):
            return _open_batches(job, loader, collate, sampler)
        options = _options(loader)
        _check_loader(loader, job.micro_batch)
        dataset, collate, workers = loader.dataset, collate or loader.collate_fn, workers or loader.num_workers
        if not isinstance(dataset, IterableDataset):
            plain = type(loader.sampler) is RandomSampler and not loader.sampler.replacement and (
                len(loader.sampler) == len(loader.dataset))  # type: ignore[arg-type]
            shuffle = shuffle and type(loader.sampler) is not SequentialSampler
            sampler = sampler or (None if plain or not shuffle else loader.sampler)
    if isinstance(dataset, IterableDataset) or (hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__")):
        if sampler is not None:
            raise UsageError(f"{type(dataset).__name__} is a stream, which is read in its own order: leave the sampler out")
        if workers and isinstance(dataset, IterableDataset):
            return _open_batches(job, DataLoader(dataset, batch_size=job.micro_batch, num_workers=workers, collate_fn=collate), None, None)
        return Stream(dataset, collate, job, next((p for p in job._positions if p.dataset is dataset), None))
    return MicroBatches(dataset, collate, workers, job.seed, job.batch, job.micro_batch, job.steps, sampler, shuffle,
                        options, job.bitwise if job.compares_samples else None, getattr(job, "seen", None))


def _loader_in(dataset: Any) -> Any:
    """WebDataset's WebLoader is a stream whose first stage is a DataLoader: its items are batches."""
    stages = getattr(dataset, "pipeline", None)
    if not isinstance(dataset, IterableDataset) or not isinstance(stages, list) or not stages or not isinstance(stages[0], DataLoader):
        return dataset
    if len(stages) > 1:
        raise UsageError(f"a {type(dataset).__name__} with stages after its DataLoader (shuffle, unbatched, batched, with_epoch): Tidemill counts the batches that a "
                         "DataLoader gives. Put the stages into the data set, before batched(micro_batch), and leave the loader plain")
    return stages[0]


def _open_batches(job: Any, loader: DataLoader, collate: Any, sampler: Any) -> "StreamOfBatches":
    name = type(loader.dataset).__name__
    if sampler is not None or collate is not None:
        raise UsageError(f"{name} is a stream, whose batches its DataLoader makes (num_workers, or batch_size=None): leave sampler and collate out "
                         "of job.batches, and give the DataLoader its collate_fn")
    if loader.batch_size is not None:
        _check_loader(loader, job.micro_batch)
    if not getattr(loader, "in_order", True):
        raise UsageError("DataLoader(in_order=False): which batch comes next would be another one on every worker. Leave it out")
    if any(p.dataset is loader.dataset for p in job._positions):
        warnings.warn(f"attach(state=...) was given {name}, whose batches its DataLoader makes (num_workers, or batch_size=None): where it is is "
                      "not known here, so a worker that joins reads it from its start (each item is still used once). With num_workers=0 and a "
                      "batch_size it begins where the job is")
    return StreamOfBatches(loader, job)


def items_of(dataset: Any) -> int:
    """Of an epoch: what a DataLoader's sampler gives, which may be less or more than its data set has."""
    given = dataset.sampler if isinstance(dataset, DataLoader) else dataset
    if not hasattr(given, "__len__"):
        raise UsageError(f"a {type(given).__name__} has no length: an epoch must have one")
    return len(given)


def same_data(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Do two calls of `Job.batches` give the same items in the same order? A DataLoader may be made anew for every epoch."""
    one, other = first[0], second[0]
    if isinstance(one, DataLoader) and isinstance(other, DataLoader) and one is not other:
        if one.batch_size != other.batch_size or _code_of(one.collate_fn) != _code_of(other.collate_fn):
            return False
        plain = (RandomSampler, SequentialSampler)
        if type(one.sampler) is not type(other.sampler) or not (one.sampler is other.sampler or type(one.sampler) in plain):
            return False
        one, other = one.dataset, other.dataset
    return one is other and first[3] is second[3] and first[4] == second[4] and _code_of(first[1]) == _code_of(second[1])


def _code_of(function: Any) -> Any:
    """What a function does, which may be made anew for every epoch."""
    function = getattr(function, "func", function)  # of functools.partial
    return getattr(getattr(function, "__func__", function), "__code__", type(function))


def _options(loader: DataLoader) -> Dict[str, Any]:
    """How its processes load, where it has any."""
    if not loader.num_workers:
        return {}
    names = ("worker_init_fn", "timeout", "pin_memory", "prefetch_factor", "multiprocessing_context")
    return {name: getattr(loader, name) for name in names}


def _check_loader(loader: DataLoader, micro_batch: int) -> None:
    if loader.batch_size is None or type(loader.batch_sampler).__name__ != "BatchSampler":
        raise UsageError("the DataLoader has a batch_sampler of its own, or batch_size=None: Tidemill makes the batches, so give "
                         "job.batches the data set, with a sampler= for the order of items")
    if loader.batch_size != micro_batch:
        raise UsageError(f"the DataLoader's batch_size is {loader.batch_size}, the job's micro_batch {micro_batch}: the loop gets "
                         "micro-batches, so make them the same")


def _check_sampler(sampler: Any) -> None:
    if isinstance(sampler, DistributedSampler) and sampler.num_replicas != 1:
        raise UsageError("a DistributedSampler shares items out by rank, which is Tidemill's part here: leave it out, or give the "
                         "sampler of a single process")
    if not hasattr(sampler, "__iter__") or not hasattr(sampler, "__len__"):
        raise UsageError(f"the sampler (a {type(sampler).__name__}) has no length: an epoch must have one")


class _Looked:
    """An item that was only looked at."""

    def __init__(self, seen: Any) -> None:
        self.seen = seen


class _Keyed(Dataset):
    """The data set, indexed by (key, item): augmentation draws the same numbers on any worker."""

    def __init__(self, dataset: Any, compared: bool) -> None:
        """compared: what is not the same twice is an error."""
        self._dataset, self._generators = dataset, generators_in(dataset)
        self._key, self._looked, self._compared = 0, False, compared

    @property
    def is_compared(self) -> bool:
        """As `compared`."""
        return self._compared

    def __getitem__(self, place: Sequence[int]) -> Any:
        """place: with a third number, whether floats must be exact, of what is only looked at."""
        if len(place) == 2:
            return self._load(place)
        first, again = (print_of(self._load(place), bool(place[2])) for _ in range(2))
        if first != again:
            raise UsageError(f"item {place[1]} of {type(self._dataset).__name__} is another one when it is asked for again with the same random numbers: the data set "
                             "counts, or draws from a generator that it makes anew each time (numpy.random.default_rng(), the time). A worker that joins, or a step "
                             "that is done again, would have another item. Draw from torch's, Python's or NumPy's random numbers, or from a generator that is kept in "
                             "the data set, which are seeded for each item. Where that is what you want, say try_twice=False to init")
        return _Looked(first)

    def _load(self, place: Sequence[int]) -> Any:
        self._key = place[0]
        seed_all(place[0])
        self._generators.seed(place[0])
        item = self._dataset[place[1]]
        if self._looked:
            return item
        self._looked = True
        found = len(self._generators.found)
        self._generators.add(self._dataset)  # some are made with the first item
        return item if found == len(self._generators.found) else self._load(place)

    def key_of_batch(self) -> int:
        """Of the last item that was loaded here, for what is drawn when a batch is made."""
        return self._key

    def __getattr__(self, name: str) -> Any:
        """The data set's own: a worker_init_fn is given this one."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._dataset, name, value)


class _Order:
    """A sampler of batches: this worker's micro-batches from a step on, after what is only looked at."""

    def __init__(self, owner: "MicroBatches", first: Tuple[int, int], looked_at: List[Tuple[int, int, int]]) -> None:
        self._owner, self._first, self._looked_at = owner, first, looked_at

    def __iter__(self) -> Iterator[Sequence[Tuple[int, ...]]]:
        if self._looked_at:
            yield self._looked_at
        step, number = self._first
        while step <= self._owner.steps:
            for m in self._owner.share:
                if m >= number:
                    yield self._owner.places(step, m)
            step, number = step + 1, 0


class _Collated:
    """The collate function, whose generators draw the same numbers on any worker; what is only looked at passes by."""

    def __init__(self, collate: Callable[[List[Any]], Any], dataset: _Keyed) -> None:
        self._collate, self._keyed, self._generators = collate, dataset, generators_in(collate)
        self._tried = collate is default_collate

    def __call__(self, rows: List[Any]) -> Any:
        if rows and isinstance(rows[0], _Looked):
            return _Looked(rows)  # not a list: pinning would take it apart
        try:
            same = None if self._tried else copy.deepcopy(rows)  # which a function may take apart
        except Exception:  # noqa: BLE001  # what cannot be copied cannot be tried
            same = None
        batch = self._make(rows)
        if same is not None and self._keyed.is_compared and print_of(batch, True) != print_of(self._make(same), True):
            raise UsageError(f"the collate function ({getattr(self._collate, '__qualname__', type(self._collate).__name__)}) makes another batch when it is given the same "
                             "items again: it keeps something from one batch to the next (a rest of packed texts, a count), which a worker that joins, or a process "
                             "that loads, would not have. Pack within a batch, or read a stream (IterableDataset) that packs; where that is what you want, say "
                             "try_twice=False to init")
        self._tried = True
        return batch

    def _make(self, rows: List[Any]) -> Any:
        key = self._keyed.key_of_batch() ^ _COLLATE
        seed_all(key)
        self._generators.seed(key)
        return self._collate(rows)


class MicroBatches:
    """Loads micro-batches; as long as they are requested in order, worker processes load ahead."""

    def __init__(self, dataset: Any, collate: Optional[Callable[[List[Any]], Any]], workers: int, seed: int, batch: int,
                 micro_batch: int, steps: int, sampler: Any = None, shuffle: bool = True,
                 options: Optional[Dict[str, Any]] = None, exact: Optional[bool] = None, known: Any = None) -> None:
        """exact: workers compare samples, floats to the bit; None: they do not compare them. known: what was seen before (Seen)."""
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise UsageError(f"{type(dataset).__name__} is neither a map-style data set (with __len__ and __getitem__) nor a "
                             "stream (with __iter__): Tidemill has to name the samples of a step, whoever computes them")
        if sampler is not None:
            _check_sampler(sampler)
        self.count: int = len(dataset) if sampler is None else len(sampler)
        self._sampler, self._shuffle, self._options = sampler, shuffle, options or {}
        self._orders: Dict[int, List[int]] = {}
        self._tried, self._drawn = False, generators_in(sampler)
        if self.count == 0:
            raise UsageError("the data set is empty")
        self._dataset = _Keyed(dataset, exact is not None)
        self._collate = _Collated(collate or default_collate, self._dataset)
        self._workers, self._seed = workers, seed
        self._batch, self._micro_batch, self.steps = batch, micro_batch, steps
        self.share: Sequence[int] = ()
        self._ahead: Optional[Iterator[Any]] = None
        self._expected: Optional[Tuple[int, int]] = None
        self._exact, self._unseen, self._known = exact, True, known
        self._prints: Tuple[int, List[Optional[Print]]] = (0, [])  # of the first samples of a step

    def places(self, step: int, number: int) -> List[Tuple[int, int]]:
        """(key of its random numbers, item) of each sample of a micro-batch."""
        first = number * self._micro_batch
        if self._sampler is None and self._shuffle:
            items = samples.micro_batch_items(self._seed, self.count, self._batch, self._micro_batch, step, number)
        else:
            start = (step - 1) * self._batch + first
            items = [self._item(start + j) for j in range(self._micro_batch)]
        return list(zip(samples.keys_of(self._seed, step, first, self._micro_batch, _DATA), items))

    def _item(self, index: int) -> int:
        if self._sampler is None:
            return index % self.count
        epoch = index // self.count
        if epoch not in self._orders:
            while len(self._orders) >= _EPOCHS_KEPT:
                self._orders.pop(next(iter(self._orders)))
            self._orders[epoch] = self._order(epoch)
        return self._orders[epoch][index % self.count]

    def _order(self, epoch: int) -> List[int]:
        """The sampler's own, with random numbers of this epoch, whatever it gave before: it is tried once."""
        order = self._asked(epoch)
        if not self._tried:
            self._tried = True
            if self._asked(epoch) != order:
                raise UsageError(f"the sampler (a {type(self._sampler).__name__}) gives another order when it is asked again for the same epoch: it "
                                 "keeps a count, or random numbers of its own, which a worker that joins would not have. Give it "
                                 "set_epoch(epoch), and compute its order from that and from torch's random numbers")
        return order

    def _asked(self, epoch: int) -> List[int]:
        key = samples.key_of(self._seed, epoch, 0, _ORDER)
        if callable(getattr(self._sampler, "set_epoch", None)):
            self._sampler.set_epoch(epoch)
        self._drawn.seed(key)
        generator = getattr(self._sampler, "generator", None)
        if generator is not None:
            generator.manual_seed(key)
        seed_all(key)
        with _as_one_process():
            order = [int(i) for i in self._sampler]
        if len(order) != self.count:
            raise UsageError(f"the sampler gave {len(order)} items in epoch {epoch}, and said {self.count} (its length): every "
                             "epoch must have as many")
        return order

    def begin(self, share: Sequence[int]) -> None:
        """A new generation: this worker's share changes."""
        self.share = share
        self._unseen = self._exact is not None
        self.restart()

    def _to_look_at(self, step: int) -> List[Tuple[int, int, int]]:
        """The first samples of the step, once in a generation, where all workers are at the same one: which samples there are depends
        on no worker, and so must what is in them."""
        if not self._unseen:
            return []
        self._unseen = False
        before = self._known.step if self._known is not None and not self._prints[0] else 0  # this process is new, and the job is not
        steps = [step] if before in (0, step) else [step, before]
        return [(key, item, int(bool(self._exact))) for one in steps for key, item in self.places(one, 0)[:len(SAMPLES)]]

    def _take_prints(self, step: int, prints: List[Optional[Print]]) -> None:
        count = min(len(SAMPLES), self._micro_batch)
        self._prints = (step, prints[:count])
        for name, seen in zip(SAMPLES, prints[count:]):
            if self._known.differs(name, seen):
                warnings.warn(f"a sample of step {self._known.step} is another one now than when that step was computed: {OTHER_SAMPLES}", stacklevel=2)
                return

    def generators(self) -> List[Any]:
        """None: each item has its numbers."""
        return []

    def marks(self, step: int) -> Dict[str, Any]:
        """As Source.marks."""
        out: Dict[str, Any] = {}
        order = self._orders.get((step - 1) * self._batch // self.count)
        if order is not None:
            out[ORDER] = mark_of(torch.tensor(order, dtype=torch.int64).numpy().tobytes())
        if self._prints[0] == step:
            out.update(zip(SAMPLES, self._prints[1]))
        return out

    def restart(self) -> None:
        """Drops what was loaded ahead."""
        self._ahead = None
        self._expected = None

    def get(self, step: int, number: int) -> Any:
        """A micro-batch of this worker's share, collated."""
        looked_at = self._to_look_at(step)
        if self._workers == 0:
            if looked_at:
                self._take_prints(step, [self._dataset[place].seen for place in looked_at])
            return self._collate([self._dataset[place] for place in self.places(step, number)])
        if self._expected != (step, number):
            self._ahead = iter(DataLoader(self._dataset, batch_sampler=_Order(self, (step, number), looked_at),  # type: ignore
                                          num_workers=self._workers, collate_fn=self._collate, **self._options))
            if looked_at:
                self._take_prints(step, [row.seen for row in next(self._ahead).seen])
        assert self._ahead is not None
        out = next(self._ahead)
        following = [m for m in self.share if m > number]
        self._expected = (step, following[0]) if following else (step + 1, self.share[0])
        return out

    def commit(self, step: int) -> None:
        """Which items follow is known from the step."""

    def close(self) -> None:
        """Ends the loading processes."""
        self._ahead = None


def stream_in(thing: Any) -> Any:
    """The stream that it is, or that a DataLoader of one has; None: it is none."""
    dataset = thing.dataset if isinstance(thing, DataLoader) else thing
    if isinstance(dataset, IterableDataset):
        return dataset
    if isinstance(dataset, (torch.nn.Module, torch.optim.Optimizer, Dataset)):
        return None
    return dataset if hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__") else None


class Position:
    """Where a stream is, as part of the job's state: the place of the next item, its epoch, and the data set's own state there.

    It has a fixed size, as all state has."""

    by_worker = True  # one that tries whether it continues is an item ahead

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.place = self.epoch = 0
        self.state: Any = None  # None: not known here, so read from the start
        self.trusted = True
        self._bytes = torch.zeros(_POSITION_BYTES, dtype=torch.uint8)

    def set(self, place: int, epoch: int, state: Any) -> None:
        """The next item is number `place`."""
        text = json.dumps([place, epoch, to_plain(state, f"the state of {type(self.dataset).__name__}")]).encode()
        if len(text) + 8 > _POSITION_BYTES:
            raise UsageError(f"the state of {type(self.dataset).__name__} takes {len(text)} bytes, and {_POSITION_BYTES - 8} fit: "
                             "leave it out of attach(state=...); a worker that joins then reads the stream from its start")
        self.place, self.epoch, self.state = place, epoch, state
        self.trusted = place >= 0
        data = (len(text).to_bytes(8, "little") + text).ljust(_POSITION_BYTES, b"\0")
        self._bytes = torch.frombuffer(bytearray(data), dtype=torch.uint8)

    def state_dict(self) -> Dict[str, Any]:
        """As bytes."""
        return {"position": self._bytes}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """What state_dict gave."""
        self._bytes = state["position"].cpu()
        data = self._bytes.numpy().tobytes()
        size = int.from_bytes(data[:8], "little")
        if size:
            self.place, self.epoch, plain = json.loads(data[8: 8 + size])
            self.state, self.trusted = from_plain(plain), self.place >= 0


def _check_passed(known: Any, exact: Optional[bool], place: int, each: int, item: Any, name: str) -> None:
    """A process that is new passes over what was used before it came, and finds there what was seen then. each: items of a step."""
    if known is None or exact is None or known.step == 0 or place != (known.step - 1) * each:
        return
    if known.differs(SAMPLES[0], print_of(item, exact)):
        raise UsageError(f"the first item of step {known.step} of {name} is another one now than when that step was computed: {OTHER_SAMPLES}")


def _alike(a: Any, b: Any) -> bool:
    """Are two items the same?"""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.shape == b.shape and bool(torch.equal(a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_alike(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b))
    return bool(getattr(a == b, "all", lambda: a == b)())


class Stream:
    """An IterableDataset, read by place. A worker that joins begins at the job's position where there is one, and passes over what
    was used before it came where there is none."""

    count: Optional[int] = None

    def __init__(self, dataset: Any, collate: Optional[Callable[[List[Any]], Any]], job: Any,
                 position: Optional[Position] = None) -> None:
        self._dataset, self._collate = dataset, collate or default_collate
        self._drawn, self._inside = generators_in(self._collate), generators_in(dataset)
        self._seed, self._batch, self._micro_batch = job.seed, job.batch, job.micro_batch
        self._iterator: Optional[Iterator[Any]] = None
        self._items: Deque[Any] = deque()  # of this step, from place `_first` on
        self._first = 0
        self._epoch = 0
        self._empty = True
        self._position, self._tries = position, 0
        self._exact = job.bitwise if job.compares_samples else None
        self._print: Tuple[int, Optional[Print]] = (0, None)  # of the first item of a step
        self._known = getattr(job, "seen", None)

    def generators(self) -> List[Any]:
        """They go on from item to item."""
        return self._inside.found

    def marks(self, step: int) -> Dict[str, Any]:
        """As Source.marks."""
        return {SAMPLES[0]: self._print[1]} if self._print[0] == step else {}

    def begin(self, share: Sequence[int]) -> None:
        """Any share will do."""

    def restart(self) -> None:
        """The items of the step are still here."""

    def get(self, step: int, number: int) -> Any:
        """As Source.get."""
        start = (step - 1) * self._batch
        at = self._position
        if at is not None and at.state is not None and at.place <= start and at.place > self._first + len(self._items):
            self._go_to(at)
        if start < self._first:  # never in a job: steps do not go back
            self._iterator, self._first, self._epoch = None, 0, 0
            self._items.clear()
        while self._first < start:
            if not self._items:
                self._read()
            _check_passed(self._known, self._exact, self._first, self._batch, self._items.popleft(), type(self._dataset).__name__)
            self._first += 1
        at_item = number * self._micro_batch
        while len(self._items) < at_item + self._micro_batch:
            self._read()
        if self._exact is not None and self._print[0] != step:
            self._print = (step, print_of(self._items[0], self._exact))
        key = samples.key_of(self._seed, start + at_item, 0, _COLLATE)
        seed_all(key)  # one that draws numbers draws the same when asked again
        self._drawn.seed(key)
        return self._collate([self._items[at_item + j] for j in range(self._micro_batch)])

    def commit(self, step: int) -> None:
        """The step's items are used: what follows is where the job is."""
        if self._position is None or not self._position.trusted:
            return
        while self._first + len(self._items) < step * self._batch:
            self._read()
        if self._first + len(self._items) > step * self._batch:
            return  # the item that was read to try the position; the next commit has one
        holder = self._iterator if hasattr(self._iterator, "state_dict") else self._dataset
        state = copy.deepcopy(holder.state_dict())
        if self._tries < _TRIES and not self._continues(state):
            warnings.warn(f"{type(self._dataset).__name__} does not continue where its state_dict was taken (a buffer that shuffles "
                          "is no part of it): a worker that joins reads the stream from its start instead, and each item is "
                          "still used once")
            self._position.set(-1, 0, None)  # for everybody
            return
        self._position.set(step * self._batch, self._epoch, state)

    def _open(self, dataset: Any, epoch: int, state: Any = None) -> Iterator[Any]:
        """An iterator of this epoch, from its start or from a state."""
        if callable(getattr(dataset, "set_epoch", None)):
            dataset.set_epoch(epoch)
        key = samples.key_of(self._seed, epoch, 0, _STREAM)
        seed_all(key)
        (self._inside if dataset is self._dataset else generators_in(dataset)).seed(key)
        if state is not None and hasattr(dataset, "load_state_dict"):
            dataset.load_state_dict(copy.deepcopy(state))
        with _as_one_process():
            iterator = iter(dataset)
        if state is not None and not hasattr(dataset, "load_state_dict"):
            iterator.load_state_dict(copy.deepcopy(state))  # type: ignore[attr-defined]
        return iterator

    def _go_to(self, at: Position) -> None:
        self._iterator, self._epoch, self._empty = self._open(self._dataset, at.epoch, at.state), at.epoch, False
        self._items.clear()
        self._first = at.place

    def _continues(self, state: Any) -> bool:
        """Does a copy with this state give the item that comes next?"""
        self._tries += 1
        epoch, place = self._epoch, self._first + len(self._items)
        try:
            other = copy.deepcopy(self._dataset)
        except Exception:  # open files, generators: what cannot be copied cannot be tried
            return True
        iterator = self._open(other, epoch, state)
        seed_all(samples.key_of(self._seed, place, 0, _DATA))
        try:
            with _as_one_process():
                expected = next(iterator)
        except StopIteration:
            return True
        self._read()
        return self._epoch == epoch and _alike(self._items[-1], expected)

    def _read(self) -> None:
        """The next item, with random numbers of its place."""
        place = self._first + len(self._items)
        while True:
            if self._iterator is None:
                self._iterator, self._empty = self._open(self._dataset, self._epoch), True
            seed_all(samples.key_of(self._seed, place, 0, _DATA))
            try:
                with _as_one_process():
                    self._items.append(next(self._iterator))
                self._empty = False
                return
            except StopIteration:
                if self._empty:
                    raise UsageError("the stream has no items") from None
                self._iterator, self._epoch = None, self._epoch + 1

    def close(self) -> None:
        """As Source.close."""
        self._iterator = None


def _copied(batch: Any) -> Any:
    """A batch that the loop may change; pinned memory stays pinned."""
    if isinstance(batch, torch.Tensor):
        return batch.clone().pin_memory() if batch.is_pinned() else batch.clone()
    if type(batch) is dict:
        return {key: _copied(value) for key, value in batch.items()}
    if type(batch) in (list, tuple):
        return type(batch)(_copied(value) for value in batch)
    return copy.deepcopy(batch)


class StreamOfBatches:
    """A DataLoader of a stream, read by its batches: each is a micro-batch of the job, by its place. Every worker reads all of them, and
    uses its own; one that joins passes over what was used before it came. The end of an epoch is where the DataLoader ends."""

    count: Optional[int] = None

    def __init__(self, loader: DataLoader, job: Any) -> None:
        self._loader, self._seed, self._each = loader, job.seed, job.batch // job.micro_batch
        self._iterator: Optional[Iterator[Any]] = None
        self._kept: Deque[Any] = deque()  # of this step, from place `_first` on
        self._first = self._epoch = 0
        self._empty = True
        self._exact = job.bitwise if job.compares_samples else None
        self._print: Tuple[int, Optional[Print]] = (0, None)  # of the first batch of a step
        self._known = getattr(job, "seen", None)

    def generators(self) -> List[Any]:
        """They go on from batch to batch."""
        return generators_in(self._loader.dataset, self._loader.collate_fn).found

    def marks(self, step: int) -> Dict[str, Any]:
        """As Source.marks."""
        return {SAMPLES[0]: self._print[1]} if self._print[0] == step else {}

    def begin(self, share: Sequence[int]) -> None:
        """Any share will do."""

    def restart(self) -> None:
        """The batches of the step are still here."""

    def get(self, step: int, number: int) -> Any:
        """As Source.get."""
        start = (step - 1) * self._each
        if start < self._first:  # never in a job: steps do not go back
            self._iterator, self._first, self._epoch = None, 0, 0
            self._kept.clear()
        while self._first < start:
            if not self._kept:
                self._read()
            _check_passed(self._known, self._exact, self._first, self._each, self._kept.popleft(), type(self._loader.dataset).__name__)
            self._first += 1
        while len(self._kept) <= number:
            self._read()
        if self._exact is not None and self._print[0] != step:
            self._print = (step, print_of(self._kept[0], self._exact))
        return _copied(self._kept[number])

    def _open(self) -> Iterator[Any]:
        """Processes that load draw from what they are given here."""
        loader, key = self._loader, samples.key_of(self._seed, self._epoch, 0, _STREAM)
        if callable(getattr(loader.dataset, "set_epoch", None)):
            loader.dataset.set_epoch(self._epoch)
        if loader.generator is not None:
            loader.generator.manual_seed(key)
        seed_all(key)
        generators_in(loader.dataset, loader.collate_fn).seed(key)
        with _as_one_process():
            return iter(loader)

    def _read(self) -> None:
        place = self._first + len(self._kept)
        while True:
            if self._iterator is None:
                self._iterator, self._empty = self._open(), True
            seed_all(samples.key_of(self._seed, place, 0, _DATA))
            try:
                with _as_one_process():
                    self._kept.append(next(self._iterator))
                self._empty = False
                return
            except StopIteration:
                if self._empty:
                    raise UsageError("the stream has no items") from None
                self._iterator, self._epoch = None, self._epoch + 1

    def commit(self, step: int) -> None:
        """Where it is follows from the step."""

    def close(self) -> None:
        """Ends the loading processes."""
        self._iterator = None


__all__ = ["MicroBatches", "Position", "Source", "Stream", "StreamOfBatches", "items_of", "open_source", "same_data", "stream_in"]

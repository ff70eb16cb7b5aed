"""Streams with positions: each item is used once, and a worker that joins does not read what was used before."""
import io
import os
import tarfile
import warnings
from types import SimpleNamespace

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

import patterns
from check_patterns import compare, train
from cluster import Skipped, Trouble, need
from tidemill.torch import data as data_of

READ = []  # items that were read, in order
KILLS = {"kills": {3, 8, 12}, "given_up": {5: 2, 9: 1}}


def item(i):
    x = torch.randn(6, generator=torch.Generator().manual_seed(i))
    return x + 0.01 * torch.randn(6), int(x.sum() > 0)


class Lines(IterableDataset):
    """Fifty items an epoch, six steps and a quarter; its state is the number of the next one."""

    def __init__(self):
        self.next = 0

    def __iter__(self):
        while self.next < 50:
            self.next += 1
            READ.append(self.next - 1)
            yield item(self.next - 1)
        self.next = 0

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


class Walk:
    """An iterator that has the state, as torchdata's may."""

    def __init__(self):
        self.next = 0

    def __next__(self):
        if self.next == 50:
            raise StopIteration
        self.next += 1
        READ.append(self.next - 1)
        return item(self.next - 1)

    def __iter__(self):
        return self

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


class Walks(IterableDataset):
    def __iter__(self):
        return Walk()


class Shuffles(Lines):
    """Keeps a buffer that is no part of its state."""

    def __iter__(self):
        buffer = []
        for one in super().__iter__():
            buffer.append(one)
            if len(buffer) > 4:
                yield buffer.pop(int(torch.randint(len(buffer), ())))
        yield from buffer


class Tars(IterableDataset):
    """As WebDataset has it: tar files, each sample two members of one (N.pt, N.cls), shards in an order by the epoch, no state."""

    def __init__(self, folder):
        self.files, self.epoch = sorted(folder.glob("*.tar")), 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = torch.randperm(len(self.files), generator=torch.Generator().manual_seed(self.epoch))
        for number in order.tolist():
            with tarfile.open(self.files[number], "r|") as tar:  # as from a pipe: it is read once, from its start
                sample = {}
                for member in tar:
                    READ.append(member.name)
                    sample[member.name.partition(".")[2]] = tar.extractfile(member).read()
                    if len(sample) == 2:
                        yield torch.load(io.BytesIO(sample["pt"])), int(sample["cls"])
                        sample = {}


def write_tars(folder):
    for shard in range(5):
        with tarfile.open(folder / f"part-{shard}.tar", "w") as tar:
            for i in range(10 * shard, 10 * shard + 10):
                x, y = item(i)
                data = io.BytesIO()
                torch.save(x, data)
                for name, content in ((f"{i:03}.pt", data.getvalue()), (f"{i:03}.cls", str(y).encode())):
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))


def script(make, attached=True, wrap=lambda d: d):
    def run(job):
        model, data = patterns.net(), wrap(make())
        job.attach(model, patterns.sgd(model), **({"state": {"data": data}} if attached else {}))
        for x, y in job.batches(data):
            job.backward(F.cross_entropy(model(x), y))
        assert job.done()
        return patterns.state(model)
    return run


def both(make, wrap=lambda d: d):
    """(items read alone, items read through kills); the same weights with and without positions and kills."""
    READ.clear()
    expected = train(script(make, False, wrap))
    READ.clear()
    alone = train(script(make, True, wrap))
    first = list(READ)
    READ.clear()
    killed = train(script(make, True, wrap), {k: v.copy() for k, v in KILLS.items()})
    compare("a stream without a position", expected, alone)
    compare("a stream", alone, killed)
    return first, list(READ)


def test_stream_of_tars(build, folder):
    """Every sample once an epoch, in the same order whatever is lost; a worker that joins reads the files from the first one."""
    write_tars(folder)
    READ.clear()
    alone = train(script(lambda: Tars(folder), False))
    used = [name for name in READ if name.endswith(".cls")][: patterns.STEPS * patterns.BATCH]
    assert all(len(set(used[at: at + 50])) == len(used[at: at + 50]) for at in (0, 50, 100)) and used[:50] != used[50:100]
    compare("tar files", alone, train(script(lambda: Tars(folder), False), {k: v.copy() for k, v in KILLS.items()}))


def test_stream_shared_out_by_rank(build, folder):
    """A worker that is one of two sees all of the stream, whoever loads it, and finds its variables as they were."""
    job = SimpleNamespace(seed=5, batch=patterns.BATCH, micro_batch=patterns.MICRO, _positions=[], bitwise=True, compares_samples=True)
    seen = []
    for rank, workers in (("0", "1"), ("1", "2")):
        os.environ.update(RANK=rank, WORLD_SIZE=workers)
        try:
            for data in (patterns.SplitByNode(), DataLoader(patterns.SplitByNode(), patterns.MICRO, num_workers=1)):
                source = data_of.open_source(job, data, None, 0, None, True)
                seen.append([source.get(step, number)[0] for step in (1, 2, 3) for number in range(4)])
                source.close()
            assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == (rank, workers)
        finally:
            del os.environ["RANK"], os.environ["WORLD_SIZE"]
    for alone, other in ((seen[0], seen[2]), (seen[1], seen[3])):
        assert all(torch.equal(a, b) for a, b in zip(alone, other))


def test_stream_positions(build, folder):
    total = patterns.STEPS * patterns.BATCH
    for make in (Lines, Walks):
        alone, killed = both(make)
        used = [i % 50 for i in range(total)]
        assert [alone.count(i) for i in range(50)] >= [used.count(i) for i in range(50)]
        assert len(alone) <= total + 5, len(alone)  # and what tries the position
        assert len(killed) <= total + 4 * patterns.BATCH, (make, len(killed))  # of steps that were lost, not all before them


def test_stream_whose_state_is_not_all(build, folder):
    """Found out, and read from the start."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        alone, killed = both(Shuffles)
    assert any("does not continue where its state_dict was taken" in str(w.message) for w in told)
    assert len(killed) > len(alone) + patterns.BATCH


def test_stateful_data_loader(build, folder):
    """torchdata's: of a stream, and of numbered items, which need no position."""
    need("torchdata")
    from torchdata.stateful_dataloader import StatefulDataLoader

    _, killed = both(Lines, lambda d: StatefulDataLoader(d, batch_size=patterns.MICRO))
    assert len(killed) <= patterns.STEPS * patterns.BATCH + 4 * patterns.BATCH, len(killed)
    numbered = script(patterns.Points, True, lambda d: StatefulDataLoader(d, batch_size=patterns.MICRO, shuffle=True))
    compare("numbered items", train(numbered), train(numbered, {k: v.copy() for k, v in KILLS.items()}))


def test_streams_of_hugging_face(build, folder):
    """IterableDataset of the package datasets, in shards."""
    need("datasets")
    try:
        import datasets
    except ImportError as error:
        raise Skipped(str(error))

    def rows(mapped):
        plain = datasets.Dataset.from_list([{"x": [float(i), 1.0, 0.0, float(i % 7), 0.5, -1.0], "y": i % 3} for i in range(50)])
        stream = plain.to_iterable_dataset(num_shards=3)
        return stream.map(lambda row: row) if mapped else stream

    def run(mapped):
        def body(job):
            model, data = patterns.net(), rows(mapped)
            job.attach(model, patterns.sgd(model, lr=1e-3), state={"data": data})
            for x, y in job.batches(data, collate=lambda many: [torch.tensor([r[k] for r in many]) for k in ("x", "y")]):
                job.backward(F.cross_entropy(model(x), y))
            assert job.done()
            places.append(job._positions[0].place)
            return patterns.state(model)
        return body

    for mapped in (False, True):  # what `map` keeps ahead is no part of its state
        places = []
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            compare("datasets", train(run(mapped)), train(run(mapped), {k: v.copy() for k, v in KILLS.items()}))
        assert any("does not continue" in str(w.message) for w in told) == mapped
        if places != [-1 if mapped else patterns.STEPS * patterns.BATCH] * 2:
            raise Trouble(f"positions {places}")


def test_stream_of_another_order(build, folder):
    """A process that comes later reads other items where others were used: it says so, whatever loads them."""
    from tidemill.errors import UsageError

    for wrap in (lambda d: d, lambda d: DataLoader(d, patterns.MICRO, num_workers=1)):
        run = script(patterns.Buffered, False, wrap)
        train(run)
        try:
            train(run, {"kills": {6}, "given_up": {}})
        except UsageError as error:
            assert "the first item of step 5 of Buffered is another one now" in str(error), error
        else:
            raise Trouble("it went on with other items")


def test_data_set_of_another_order(build, folder):
    """Of numbered items it may be meant, so it is a warning."""
    import random

    class Shuffled(patterns.Points):
        def __init__(self, key):
            super().__init__()
            self.order = random.Random(key).sample(range(40), 40)

        def __getitem__(self, i):
            return super().__getitem__(self.order[i])

    for workers in (0, 1):
        for same in (True, False):
            keys = iter(range(9))
            run = script(lambda: Shuffled(3 if same else next(keys)), False, lambda d: DataLoader(d, patterns.MICRO, num_workers=workers))
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                train(run, {"kills": {6}, "given_up": {}})
            found = [str(w.message) for w in told if "is another one now" in str(w.message)]
            assert len(found) == (0 if same else 1) and all("a sample of step 1 " in text for text in found), found


def test_webdataset(build, folder):
    """The real one: shards of a node, shuffled by a generator, alone and through kills; its own shuffle draws from the time."""
    need("webdataset")
    import random

    import webdataset
    from tidemill.errors import UsageError

    for shard in range(3):
        with webdataset.TarWriter(str(folder / f"{shard}.tar")) as out:
            for i in range(17):
                out.write({"__key__": f"{shard}-{i}", "x.pth": item(17 * shard + i)[0], "y.cls": i % 3})

    def make(**words):
        urls = [str(folder / f"{shard}.tar") for shard in range(3)]
        return lambda: (webdataset.WebDataset(urls, shardshuffle=False, nodesplitter=webdataset.split_by_node).shuffle(10, **words)
                        .decode().to_tuple("x.pth", "y.cls"))

    def batches():
        return webdataset.WebLoader(make(rng=random.Random(0))().batched(patterns.MICRO, partial=False), batch_size=None, num_workers=1)

    for data in (make(rng=random.Random(0)), batches):
        alone = train(script(data, False))
        compare("webdataset", alone, train(script(data, False), {k: v.copy() for k, v in KILLS.items()}))
    train(script(make(), False))
    for data, told in ((make(), "rng=random.Random(0)"), (lambda: batches().shuffle(3), "stages after its DataLoader")):
        try:
            train(script(data, False), {"kills": {6}, "given_up": {}})
        except UsageError as error:
            assert told in str(error), error
        else:
            raise Trouble("it was taken")


for _test in (test_webdataset, test_stream_whose_state_is_not_all, test_stateful_data_loader, test_streams_of_hugging_face):
    _test.slow = True

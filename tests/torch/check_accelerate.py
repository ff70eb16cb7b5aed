"""A loop of Accelerate's, with two changed lines: the weights of the plain loop, and the same through kills."""
import torch

from check_hf import after, need_transformers
from cluster import ROOT, Cluster, Skipped, Trouble, python

SCRIPT = str(ROOT / "tests" / "torch" / "train_accelerate.py")


def need_accelerate():
    need_transformers()
    try:
        import accelerate  # noqa: F401
    except ImportError:
        raise Skipped("the package accelerate is not there (make venv)")


def weights():
    from train_accelerate import train

    return {k: v.clone() for k, v in train()[1].state_dict().items()}


def test_accelerate_loop(build, folder):
    """Items in order, so that the plain loop has the same; then through three kills and two steps given up."""
    need_accelerate()
    from train_accelerate import train

    _, model = train(plain=True)
    alone = after(weights)
    for key, value in model.state_dict().items():
        torch.testing.assert_close(alone[key], value, rtol=1e-4, atol=1e-5)
    killed = after(weights, {"kills": {3, 8, 12}, "given_up": {5: 2, 9: 1}})
    assert all(torch.equal(alone[k], killed[k]) for k in alone)


def counted_steps(tracked=None):
    """In the style of transformers' run_clm_no_trainer.py: steps are counted, and the loop is left after the last; with a tracker."""
    from accelerate.tracking import GeneralTracker
    from torch.nn import functional as F
    from torch.utils.data import DataLoader

    import patterns
    from tidemill.torch.accelerate import Accelerator

    class Lines(GeneralTracker):
        name, requires_logging_directory = "lines", False
        tracker = None

        def __init__(self):
            super().__init__()

        def store_init_configuration(self, values):
            tracked.append("opened")

        def log(self, values, step=None, **named):
            tracked.append(step)

    accelerator = Accelerator(cpu=True, steps=15, batch=8, gradient_accumulation_steps=4, seed=5, determinism="bitwise",
                              log_with=None if tracked is None else Lines())
    if tracked is not None:
        accelerator.init_trackers("name", {})
    model = patterns.net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(patterns.Points(), batch_size=2))
    completed = 0
    for _ in range(3):
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                accelerator.backward(F.cross_entropy(model(inputs), targets))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                completed += 1
                accelerator.log({"completed": completed}, step=accelerator.job.committed_step + 1)
            if completed >= 15:
                break
    accelerator.end_training()
    assert accelerator.job.committed_step == 15 and completed <= 15, completed
    return {**{k: v.clone() for k, v in model.state_dict().items()}, "completed": torch.tensor(completed)}


def test_accelerate_counts_steps(build, folder):
    need_accelerate()
    alone = after(counted_steps)
    assert int(alone.pop("completed")) == 15
    given_up = after(counted_steps, {"kills": set(), "given_up": {5: 2, 9: 4}})
    assert int(given_up.pop("completed")) == 15
    killed = after(counted_steps, {"kills": {3, 8, 12}, "given_up": {5: 4}})
    assert all(torch.equal(alone[k], other[k]) for other in (given_up, killed) for k in alone)


def test_accelerate_tracks_once(build, folder):
    """Every committed step is logged once; each main worker opens what it logs to."""
    need_accelerate()
    lines = []
    after(lambda: counted_steps(lines), {"kills": {8}, "given_up": {5: 4}})
    assert lines == ["opened", *range(1, 8), "opened", *range(8, 16)], lines


def short_loop(dataset, each=lambda accelerator, model, number: None, sampler=None):
    """(accelerator, model, batches) after three epochs, of four steps where the data set has a length."""
    from torch.nn import functional as F
    from torch.utils.data import DataLoader

    import patterns
    from tidemill.torch.accelerate import Accelerator

    accelerator = Accelerator(cpu=True, steps=12, batch=8, gradient_accumulation_steps=4, seed=5, determinism="bitwise")
    model = patterns.net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(dataset, batch_size=2, sampler=sampler))
    seen = []
    for _ in range(3):
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                accelerator.backward(F.cross_entropy(model(inputs), targets))
                optimizer.step()
                optimizer.zero_grad()
            seen.append(accelerator.job.committed_step)
            each(accelerator, model, len(seen))
    accelerator.end_training()
    return accelerator, model, seen


def test_accelerate_stream(build, folder):
    """A stream has no epochs: the job is one, and a loop over epochs around it may stay."""
    need_accelerate()
    import patterns

    def once():
        accelerator, model, seen = short_loop(patterns.Lines())
        assert accelerator.job.committed_step == 12 and seen[-1] == 11
        return {k: v.clone() for k, v in model.state_dict().items()}

    alone, killed = after(once), after(once, {"kills": {3, 8}, "given_up": {5: 2}})
    assert all(torch.equal(alone[k], killed[k]) for k in alone)


def test_accelerate_sampler(build, folder):
    """An epoch has the items that the sampler gives: twelve steps in three epochs, through kills."""
    need_accelerate()
    import patterns
    from torch.utils.data import SubsetRandomSampler

    def once():
        accelerator, model, seen = short_loop(patterns.Points(), sampler=SubsetRandomSampler(range(32)))
        assert accelerator.job.committed_step == 12 and seen[-1] == 11
        return {k: v.clone() for k, v in model.state_dict().items()}

    alone, killed = after(once), after(once, {"kills": {3, 8}, "given_up": {5: 2}})
    assert all(torch.equal(alone[k], killed[k]) for k in alone)


def test_accelerate_save_state(build, folder):
    """In the loop it is written when the step is committed, by the worker that is main; loading is the job's own part."""
    need_accelerate()
    import patterns
    from safetensors.torch import load_file
    from tidemill.errors import UsageError

    committed = {}

    def each(accelerator, model, number):
        if number == 1:
            accelerator.job.after_step(lambda step, loss: committed.update({step: {k: v.clone() for k, v in model.state_dict().items()}}))
        if accelerator.job.committed_step in (3, 6) and accelerator.sync_gradients:
            step = accelerator.job.committed_step + 1
            accelerator.job._rank = int(step == 7)  # another worker is main then
            accelerator.save_state(str(folder / str(step)))
            assert not (folder / str(step)).exists()
        elif accelerator.job.committed_step == 7:
            accelerator.job._rank = 0

    accelerator, _, _ = short_loop(patterns.Points(count=32), each)
    assert [path.name for path in folder.iterdir()] == ["4"], list(folder.iterdir())
    saved = load_file(folder / "4" / "model.safetensors")
    assert all(torch.equal(saved[k], v) for k, v in committed[4].items())
    try:
        accelerator.load_state(str(folder / "4"))
    except UsageError as error:
        assert "load_state" in str(error), error
    else:
        raise Trouble("a state was loaded")


def test_accelerate_registered(build, folder):
    """What is registered before prepare is part of the job's state; afterwards only what is part of it anyway is taken."""
    need_accelerate()
    import patterns
    from tidemill.errors import UsageError
    from tidemill.torch.accelerate import Accelerator
    from torch.nn import functional as F
    from torch.utils.data import DataLoader

    def train():
        accelerator = Accelerator(cpu=True, steps=patterns.STEPS, batch=8, gradient_accumulation_steps=4, seed=5, determinism="bitwise")
        model = patterns.net()
        optimizer = patterns.sgd(model)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        ema, kept = patterns.Shadow(model), patterns.Counters()
        accelerator.register_for_checkpointing(ema, kept, schedule)
        model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, DataLoader(patterns.Points(), 2, shuffle=True), schedule)
        accelerator.register_for_checkpointing(schedule)
        for late in (patterns.Counters(), patterns.Shadow(model)):
            try:
                accelerator.register_for_checkpointing(late)
            except UsageError as error:
                assert "before prepare" in str(error), error
            else:
                raise Trouble("it was registered late")
        try:
            accelerator.skip_first_batches(loader, 2)
        except UsageError as error:
            assert "skip_first_batches" in str(error), error
        else:
            raise Trouble("batches were skipped")

        @accelerator.job.on_commit
        def change(step, loss):
            ema.update(model)
            kept.history[step - 1] = loss

        for _ in range(99):
            for x, y in loader:
                with accelerator.accumulate(model):
                    accelerator.backward(F.cross_entropy(model(x), y))
                    optimizer.step()
                    schedule.step()
            if accelerator.job._over:
                break
        accelerator.end_training()
        return {**{k: v.clone() for k, v in model.state_dict().items()}, **{f"ema {k}": v.clone() for k, v in ema.shadow.items()},
                "history": torch.tensor(kept.history)}

    alone = after(train)
    killed = after(train, {"kills": {3, 8, 12}, "given_up": {5: 2, 9: 1}})
    assert all(torch.equal(alone[k], killed[k]) for k in alone) and all(alone["history"])


def test_accelerate_who_is_main(build, folder):
    """Before prepare nobody knows it, and a script that asks is told; the first worker of an instance is known."""
    need_accelerate()
    import os

    from cluster import made_up_gpus
    from tidemill.errors import UsageError
    from tidemill.torch.accelerate import Accelerator

    accelerator = Accelerator(cpu=True, steps=1, batch=1, seed=5)
    assert accelerator.is_main_process and accelerator.is_local_main_process
    for local in ("0", "1"):
        with made_up_gpus(0, local, []):
            os.environ["TIDEMILL_COORDINATOR"] = "127.0.0.1:1"
            try:
                assert accelerator.is_local_main_process == (local == "0")
                accelerator.is_main_process
            except UsageError as error:
                assert "is_main_process" in str(error) and "job.on_main" in str(error), error
            else:
                raise Trouble("nobody is main yet")
            finally:
                os.environ.pop("TIDEMILL_COORDINATOR")


def test_accelerate_own_gpu(build, folder):
    need_accelerate()
    from cluster import made_up_gpus
    from tidemill.torch.accelerate import Accelerator

    accelerator = Accelerator(cpu=True, steps=1, batch=1, seed=5)
    assert accelerator.device == torch.device("cpu")
    accelerator.state._shared_state["device"] = torch.device("cuda")  # as accelerate finds it
    try:
        for local, gpus, expected in (("3", 4, 3), ("6", 4, 2)):
            with made_up_gpus(gpus, local, []):
                assert accelerator.device == torch.device("cuda", expected), (local, accelerator.device)
    finally:
        accelerator.state._shared_state["device"] = torch.device("cpu")


def test_accelerate_cluster(build, folder):
    need_accelerate()
    words = [python(), SCRIPT, str(folder / "out"), "--gate", str(folder / "cluster" / "gate")]
    with Cluster(build, folder / "cluster", words, 15, micro_batches=4, variables={"TIDEMILL_DETERMINISM": "bitwise"}) as c:
        c.start_agent(1)
        c.start_agent(2)
        c.await_step(3, 2)
        c.kill_worker(1)
        c.await_step(c.newest()[0] + 1, 1)
        c.kill_instance(2)
        c.start_agent(3)
        c.await_end()
        c.await_(lambda: len(list(folder.glob("out-*"))) > 0, 30, "the final weights")
        alone, other = after(weights), torch.load(next(folder.glob("out-*")))
        if not all(torch.equal(alone[k], other[k]) for k in alone):
            raise Trouble(f"other weights than alone\n{c.tail()}")


test_accelerate_cluster.slow = True

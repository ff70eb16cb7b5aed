"""Lightning's Trainer with TidemillStrategy: alone, through kills, and what is refused."""
import torch

from check_patterns import train as after
from cluster import ROOT, Cluster, Trouble, need

SCRIPT = str(ROOT / "tests" / "torch" / "train_lightning.py")


def same(a, b):
    return all(torch.equal(v, b[k]) for k, v in a.items())


def script():
    need("lightning")
    import train_lightning
    return train_lightning


def test_lightning(build, folder):
    """Steps, epochs, validation and checkpoints of a process alone, and again with kills and steps given up: the same bits."""
    lightning = script()
    trainer, module, watch = lightning.train(folder / "alone")
    assert watch.steps == list(range(1, 16)) and trainer.current_epoch == 3
    assert sorted(module.validated) == [5, 10, 15] and len(list((folder / "alone" / "kept").glob("*.ckpt"))) == 3
    assert set(module.seen) == {(s // 5, s % 5, s) for s in range(15)}
    runs = []

    def killed(_):
        runs.append(lightning.train(folder / "killed"))
        return runs[-1]

    again, other, _ = after(killed, {"kills": {3, 8, 12}, "given_up": {5: 2, 9: 1}})
    assert same(module.state_dict(), other.state_dict())
    assert again.current_epoch == 3 and again.global_step == 15
    assert {s: v for s, v in module.validated.items() if s in other.validated} == other.validated and 15 in other.validated


def test_lightning_as_it_is(build, folder):
    """But for the order of samples and rounding it is Lightning's own training: one batch, the whole data set, in order."""
    lightning = script()
    from torch import nn

    class Plain(lightning.Net):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 2))

    class Still(lightning.Points):
        def __getitem__(self, i):
            x = torch.randn(16, generator=torch.Generator().manual_seed(i))
            return x, int(x.sum() > 0)

    kept, lightning.Points = lightning.Points, Still
    items, lightning.ITEMS = lightning.ITEMS, 8
    try:
        _, ours, _ = lightning.train(folder / "a", net=Plain)
        from lightning.pytorch.strategies import SingleDeviceStrategy
        _, theirs, _ = lightning.train(folder / "b", net=Plain, strategy=SingleDeviceStrategy("cpu"), callbacks=[])
    finally:
        lightning.Points, lightning.ITEMS = kept, items
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-3, atol=1e-5)


def test_lightning_refused(build, folder):
    lightning = script()
    from lightning.pytorch.callbacks import Callback, EarlyStopping
    from tidemill.errors import UsageError

    class Steps(lightning.Net):
        def optimizer_step(self, *words, **named):
            return super().optimizer_step(*words, **named)

    class Manual(lightning.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

    class Clips(Callback):
        def on_before_optimizer_step(self, *_):
            pass

    class Plateau(lightning.Net):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), 0.1)
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"}}

    class Stops(lightning.Net):
        def on_train_batch_end(self, *_):
            self.trainer.should_stop = True

    by_hand = {"net": Manual, "gradient_clip_val": None, "accumulate_grad_batches": 1}
    for words, told in (({"net": Steps}, "Steps.optimizer_step"), (by_hand, "Manual.automatic_optimization"),
                        ({"callbacks": [EarlyStopping("val_loss")]}, "job.stop()"), ({"callbacks": [Clips()]}, "Clips.on_before"),
                        ({"net": Plateau}, "ReduceLROnPlateau"),
                        ({"limit_train_batches": 3}, "limit_train_batches"), ({"net": Plateau, "max_epochs": -1}, "has an end"),
                        ({"net": Stops, "callbacks": []}, "left early")):
        try:
            lightning.train(folder, **words)
        except UsageError as error:
            assert told in str(error), error
        else:
            raise Trouble(f"{words} was taken")


def test_lightning_stop(build, folder):
    """job.stop() in on_commit ends it early, through kills too."""
    lightning = script()

    class Stops(lightning.Net):
        def on_train_start(self):
            job = self.trainer.strategy.job
            job.on_commit(lambda step, loss: job.stop() if step == 7 else None)

    trainer, module, watch = lightning.train(folder / "alone", net=Stops)
    assert watch.steps == list(range(1, 8)) and trainer.global_step == 7, (watch.steps, trainer.global_step)
    _, other, _ = after(lambda _: lightning.train(folder / "killed", net=Stops), {"kills": {3, 6}, "given_up": {5: 2}})
    assert same(module.state_dict(), other.state_dict())


def test_lightning_cluster(build, folder):
    """Two workers, one is killed and comes back, the other is lost with its agent."""
    lightning = script()
    words = [need("lightning"), SCRIPT, str(folder / "out"), "--gate", str(folder / "cluster" / "gate")]
    with Cluster(build, folder / "cluster", words, 15, micro_batches=4) as c:
        c.start_agent(1)
        c.start_agent(2)
        c.await_step(3, 2)
        c.kill_worker(1)
        c.await_step(c.newest()[0] + 1, 1)
        c.kill_instance(2)
        c.start_agent(3)
        c.await_end()
        c.await_(lambda: len(list(folder.glob("out-*"))) > 0, 30, "the final weights")
        _, module, _ = lightning.train(folder / "alone")
        result = torch.load(next(folder.glob("out-*")))
        if not same(module.state_dict(), result):
            raise Trouble(f"other weights than alone\n{c.tail()}")


for _test in (test_lightning_as_it_is, test_lightning_stop, test_lightning_cluster):
    _test.slow = True

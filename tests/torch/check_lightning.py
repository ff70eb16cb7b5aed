"""Lightning's Trainer with TidemillStrategy: alone, through kills, and what is refused."""
from datetime import timedelta

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


def test_lightning_sampler(build, folder):
    """An epoch has the items that the sampler gives."""
    lightning = script()
    from torch.utils.data import DataLoader, SubsetRandomSampler, WeightedRandomSampler

    for sampler, steps in ((SubsetRandomSampler(range(16)), 2), (WeightedRandomSampler([1.0] * 40, 48), 6)):
        loader = DataLoader(lightning.Points("mlp", 40), 2, sampler=sampler)
        trainer, module, watch = lightning.train(folder / str(steps), loader=loader)
        assert watch.steps == list(range(1, 3 * steps + 1)) and trainer.current_epoch == 3, (steps, watch.steps)
        assert sorted(module.validated) == [steps, 2 * steps, 3 * steps], module.validated


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
    from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
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

    class ClipsAsWell(Clips):
        pass

    class Zeroes(lightning.Net):
        def on_before_zero_grad(self, optimizer):
            pass

    class Sharded(lightning.Net):
        def __init__(self):
            from tidemill.torch import plan
            from torch.distributed.fsdp import fully_shard
            super().__init__()
            fully_shard(self.body, mesh=plan.mesh_of(torch.device("cpu")))

    class Counts(Callback):
        batches = 0

        def on_train_batch_start(self, *_):
            self.batches += 1

        def state_dict(self):
            return {"batches": self.batches}

    class TwoSchedules(lightning.Net):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), 0.1)
            schedules = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9) for _ in range(2)]
            return [optimizer], schedules

    class Stops(lightning.Net):
        def on_train_batch_end(self, *_):
            self.trainer.should_stop = True

    class Forked(lightning.Net):
        def training_step(self, batch, number):
            loss = super().training_step(batch, number)
            self.log("other", loss, on_step=True, on_epoch=True)
            return loss

    by_hand = {"net": Manual, "gradient_clip_val": None, "accumulate_grad_batches": 1}
    for words, told in (({"net": Steps}, "Steps.optimizer_step"), (by_hand, "Manual.automatic_optimization"),
                        ({"callbacks": [EarlyStopping("train_loss")]}, "EarlyStopping(monitor='train_loss')"),
                        ({"callbacks": [ModelCheckpoint(folder, monitor="other_epoch")], "net": Forked}, "monitor='other_epoch'"),
                        ({"callbacks": [ModelCheckpoint(folder, filename="{epoch}-{train_loss:.2f}")]}, "(filename=...) with 'train_loss'"),
                        ({"callbacks": [ModelCheckpoint(folder, train_time_interval=timedelta(seconds=1))]}, "train_time_interval"),
                        ({"callbacks": [Clips()]}, "Clips.on_before"), ({"callbacks": [ClipsAsWell()]}, "ClipsAsWell.on_before"),
                        ({"net": Zeroes}, "Zeroes.on_before_zero_grad"), ({"net": Sharded}, "TidemillStrategy cannot shard"), ({"callbacks": [Counts()]}, "what Counts keeps"),
                        ({"net": TwoSchedules}, "2 schedules"), ({"limit_train_batches": 3}, "limit_train_batches"),
                        ({"net": TwoSchedules, "max_epochs": -1}, "has an end"), ({"net": Stops, "callbacks": []}, "should_stop was set")):
        try:
            lightning.train(folder, **words)
        except UsageError as error:
            assert told in str(error), error
        else:
            raise Trouble(f"{words} was taken")
    try:
        lightning.TidemillStrategy("cpu", shard="full")
    except UsageError as error:
        assert "TidemillStrategy cannot shard" in str(error), error
    else:
        raise Trouble("shard was taken")


def test_lightning_monitors(build, folder):
    """EarlyStopping, ModelCheckpoint(monitor=...), a plateau and a callback that keeps something: as they end alone, so through kills
    and steps given up, and what they chose is on the disk."""
    lightning = script()
    from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint

    class Plateau(lightning.Net):
        def training_step(self, batch, number):
            x, y = batch
            return super().training_step((x, 1 - y if self.trainer.current_epoch else y), number)  # what is validated becomes worse

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), 0.1)
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"}}

    class Keeps(Callback):
        def __init__(self):
            self.worst = torch.tensor(0.0)

        def on_validation_end(self, trainer, module):
            self.worst = torch.maximum(self.worst, trainer.callback_metrics["val_loss"])

        def state_dict(self):
            return {"worst": self.worst}

        def load_state_dict(self, told):
            self.worst = told["worst"]

    def run(folder, **words):
        (folder / "best").mkdir(parents=True, exist_ok=True)
        if not any((folder / "best").iterdir()):
            (folder / "best" / "chosen.ckpt").write_text("of another job")
        stop, keeps = EarlyStopping("val_loss", patience=2), Keeps()
        best = ModelCheckpoint(folder / "best", monitor="val_loss", save_top_k=2, filename="chosen", save_last=True)
        trainer, module, _ = lightning.train(folder, net=Plateau, max_epochs=9, callbacks=[stop, best, keeps], **words)
        score = {path.rpartition("/")[2]: float(value) for path, value in best.best_k_models.items()}
        files = sorted(path.name for path in (folder / "best").iterdir())
        lr = trainer.optimizers[0].param_groups[0]["lr"]
        return module.state_dict(), (trainer.global_step, stop.stopped_epoch, stop.wait_count, score, files, lr, float(keeps.worst))

    for more in ({}, {"val_check_interval": 2}):
        weights, told = run(folder / f"alone-{len(more)}", **more)
        assert told[0] < 45 and told[2] == 2 and (more or told[5] < 0.1) and len(told[3]) == 2, told
        assert (folder / f"alone-{len(more)}" / "best" / "chosen.ckpt").read_text() == "of another job"
        plan = {"kills": {2, 6, told[0] - 1}, "given_up": {5: 2, told[0]: 1}}
        other, again = after(lambda _: run(folder / f"killed-{len(more)}", **more), plan)
        assert told == again and same(weights, other), (told, again)


def test_lightning_checkpoints_of_one_folder(build, folder):
    """Two that give their files the same names: what one takes away is its own. And a callback that keeps what is no number."""
    lightning = script()
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint

    class Worse(lightning.Net):
        def training_step(self, batch, number):
            x, y = batch
            return super().training_step((x, 1 - y if self.trainer.current_epoch else y), number)

        def validation_step(self, batch, number):
            super().validation_step(batch, number)
            self.log("epoch_of_it", float(self.trainer.current_epoch))

    class Keeps(Callback):
        worst = 0.0

        def on_validation_end(self, *_):
            self.worst = float("nan")

        def state_dict(self):
            return {"worst": self.worst}

        def load_state_dict(self, told):
            self.worst = told["worst"]

    def run(folder):
        kept = [ModelCheckpoint(folder, monitor="val_loss"), ModelCheckpoint(folder, monitor="epoch_of_it", mode="max"), Keeps()]
        _, module, _ = lightning.train(folder, net=Worse, callbacks=kept)
        best = [one.best_model_path.rpartition("/")[2] for one in kept[:2]]
        assert best == ["epoch=0-step=5.ckpt", "epoch=2-step=15.ckpt"] and {path.name for path in folder.glob("*.ckpt")} == set(best), best
        return module.state_dict()

    weights = run(folder / "alone")
    assert same(weights, after(lambda _: run(folder / "killed"), {"kills": {4, 6, 11}, "given_up": {5: 2}}))


def test_lightning_loop_state(build, folder):
    """Counts and averages of the script in training_step, which the loss depends on."""
    lightning = script()
    from tidemill.errors import UsageError

    class Counts(lightning.Net):
        def on_train_start(self):
            self.kept = {"count": 0}

        def training_step(self, batch, number):
            self.kept["count"] += 1
            return super().training_step(batch, number) * (1 + 0.01 * self.kept["count"])

    class Averages(lightning.Net):
        def training_step(self, batch, number):
            loss = super().training_step(batch, number)
            self.history = [*getattr(self, "history", []), float(loss.detach())]
            return loss * (1 + 0.1 * sum(self.history) / len(self.history))

    for net in (Counts, Averages):
        try:
            lightning.train(folder, net=net)
        except UsageError as error:
            assert "was computed twice" in str(error) and "try_twice=False" in str(error), error
        else:
            raise Trouble(f"{net.__name__} was taken")
    lightning.train(folder, net=Counts, strategy=lightning.TidemillStrategy("cpu", try_twice=False))


def test_lightning_counts_once(build, folder):
    """The first step is computed twice, and what it logs for means and sums over an epoch counts once."""
    lightning = script()
    import torchmetrics

    class Logs(lightning.Net):
        def __init__(self):
            super().__init__()
            self.values = torchmetrics.SumMetric()

        def training_step(self, batch, number):
            loss = super().training_step(batch, number)
            self.log("count", 1.0, on_step=False, on_epoch=True, reduce_fx="sum")
            self.values.update(1.0)
            self.log("values", self.values, on_step=False, on_epoch=True)
            self.log("mean", loss, on_step=False, on_epoch=True)
            return loss

    told = []
    for twice in (True, False):
        strategy = lightning.TidemillStrategy("cpu", seed=3, try_twice=twice)
        trainer, _, _ = lightning.train(folder / str(twice), net=Logs, strategy=strategy, max_epochs=1)
        told.append({name: float(trainer.callback_metrics[name]) for name in ("count", "values", "mean")})
    assert told[0] == told[1] and told[0]["count"] == told[0]["values"] == 20.0, told


def test_lightning_who_is_main(build, folder):
    """Before workers have met a script that asks gets an error; Lightning itself, which asks all the time, does not."""
    lightning = script()
    import os

    from lightning.fabric.utilities.rank_zero import rank_zero_only
    from tidemill.errors import UsageError

    kept = rank_zero_only.rank
    os.environ["TIDEMILL_COORDINATOR"] = "127.0.0.1:1"
    try:
        trainer = lightning.lightning.Trainer(strategy=lightning.TidemillStrategy("cpu"), accelerator="cpu", devices=1, logger=False,
                                              default_root_dir=folder)
        for thing in (trainer, trainer.strategy):
            try:
                thing.is_global_zero
            except UsageError as error:
                assert "is_global_zero" in str(error) and "on_train_start" in str(error), error
            else:
                raise Trouble("nobody is main yet")
    finally:
        os.environ.pop("TIDEMILL_COORDINATOR")
        rank_zero_only.rank = kept
    assert trainer.is_global_zero  # alone


def test_lightning_own_gpu(build, folder):
    lightning = script()
    from cluster import made_up_gpus

    for local, gpus, expected in (("2", 4, "cuda:2"), ("5", 4, "cuda:1"), ("1", 0, "cpu")):
        with made_up_gpus(gpus, local, []):
            assert lightning.TidemillStrategy().root_device == torch.device(expected), (local, gpus)


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
    # few steps, and Lightning is long in coming: the second worker must find some left
    with Cluster(build, folder / "cluster", words, 15, micro_batches=4, variables={"GATE_S": "2"}) as c:
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


for _test in (test_lightning_as_it_is, test_lightning_counts_once, test_lightning_stop, test_lightning_cluster):
    _test.slow = True

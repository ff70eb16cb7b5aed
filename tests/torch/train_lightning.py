"""A small LightningModule under TidemillStrategy. train_lightning.py OUT [--gate FILE]"""
import argparse
import os
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from train_small import Gate, Points

from tidemill.torch.lightning import TidemillStrategy

EPOCHS, ITEMS = 3, 40  # five steps an epoch: batches of 8, as four of 2


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters({"width": 24})
        self.body = nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 2))
        self.seen, self.validated = [], {}

    def training_step(self, batch, number):
        x, y = batch
        self.seen.append((self.trainer.current_epoch, number, self.trainer.global_step))
        loss = F.cross_entropy(self.body(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, number):
        x, y = batch
        torch.rand(3)  # must not disturb the training's numbers
        self.log("val_loss", F.cross_entropy(self.body(x), y))

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self.validated[self.trainer.global_step] = float(self.trainer.callback_metrics.get("val_loss", -1.0))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 0.02)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=steps + 1)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Watch(Callback):
    def __init__(self, gate):
        self.gate, self.steps = Gate(gate), []

    def on_train_batch_end(self, trainer, module, *_):
        self.steps.append(trainer.global_step)
        print(f"applied {trainer.global_step} of {trainer.strategy.job.world_size}", flush=True)
        self.gate.wait(trainer.global_step, lambda: False)


def train(folder, gate=None, strategy=None, net=Net, loader=None, **words):
    """(trainer, module, watch) after the training."""
    warnings.simplefilter("ignore")
    lightning.seed_everything(3)
    module, watch = net(), Watch(gate)
    trainer = lightning.Trainer(**{**dict(
        strategy=strategy or TidemillStrategy("cpu", determinism="bitwise"), accelerator="cpu", devices=1, max_epochs=EPOCHS,
        accumulate_grad_batches=4, gradient_clip_val=0.5, default_root_dir=folder, enable_progress_bar=False, logger=False,
        enable_model_summary=False, callbacks=[watch, ModelCheckpoint(f"{folder}/kept", save_top_k=-1)]), **words})
    trainer.fit(module, loader or DataLoader(Points("mlp", ITEMS), 2, shuffle=True), DataLoader(Points("mlp", 8), 4))
    return trainer, module, watch


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--gate")
    words = parser.parse_args()
    trainer, module, _ = train(words.out + ".files", words.gate)
    if trainer.strategy.job.has_result:
        torch.save(module.state_dict(), f"{words.out}-{os.environ.get('TIDEMILL_INSTANCE_ID', '0')}")

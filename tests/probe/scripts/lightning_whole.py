"""Lightning as its guide shows it: `self(x)` in the training step, validation, a schedule, clipping, accumulation."""

import logging
import os
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import lightning as L  # noqa: E402


class Classifier(L.LightningModule):
    def __init__(self, width=16, lr=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(8, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        print("train", index, repr(loss.item()))
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        print("valid", index, repr(F.cross_entropy(self(x), y).item()))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}


def loader(count):
    return DataLoader(TensorDataset(torch.randn(count, 8), torch.randint(0, 3, (count,))), 4)


if __name__ == "__main__":
    L.seed_everything(0, verbose=False)
    model = Classifier()
    trainer = L.Trainer(
        max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        accelerator="cpu", gradient_clip_val=0.5, accumulate_grad_batches=2,
    )  # fmt: skip
    trainer.fit(model, loader(24), loader(8))
    print("steps", trainer.global_step)

"""A Lightning module whose training step calls its parts and never itself."""

import logging
import os
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import pytorch_lightning as pl  # noqa: E402


class AutoEncoder(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(10, 3), nn.Linear(3, 10)

    def training_step(self, batch, index):
        (x,) = batch
        loss = F.mse_loss(self.decoder(torch.tanh(self.encoder(x))), x)
        print(index, repr(loss.item()))
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


if __name__ == "__main__":
    pl.seed_everything(0, verbose=False)
    loader = DataLoader(TensorDataset(torch.randn(64, 10)), 4)
    trainer = pl.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        accelerator="cpu",
    )  # fmt: skip
    trainer.fit(AutoEncoder(), loader)

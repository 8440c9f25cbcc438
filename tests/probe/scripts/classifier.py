"""An image classifier with a DataLoader, a scheduler and validation after every epoch."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(Block(8), Block(8))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def main():
    images, labels = torch.randn(64, 3, 8, 8), torch.randint(0, 4, (64,))
    train = DataLoader(TensorDataset(images[:48], labels[:48]), 8, shuffle=True, num_workers=args.workers)
    valid = DataLoader(TensorDataset(images[48:], labels[48:]), 8)
    classifier = Classifier()
    optimizer = torch.optim.SGD(classifier.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for epoch in range(args.epochs):
        classifier.train()
        for x, y in train:
            optimizer.zero_grad()
            loss = F.cross_entropy(classifier(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(classifier.parameters(), 0.5)
            optimizer.step()
            print(f"loss {loss.item()!r}", flush=True)
        scheduler.step()
        classifier.eval()
        with torch.no_grad():
            right = sum((classifier(x).argmax(1) == y).sum().item() for x, y in valid)
        print(f"epoch {epoch}: {right} right")


if __name__ == "__main__":
    main()

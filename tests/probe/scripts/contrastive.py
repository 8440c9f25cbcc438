"""Two towers under one optimizer, called apart, with a learnt temperature that is no module's."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
image_tower = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 8))
text_tower = nn.Sequential(nn.Embedding(20, 16), nn.Flatten(), nn.Linear(16 * 5, 8))
scale = nn.Parameter(torch.tensor(2.0))
optimizer = torch.optim.AdamW([*image_tower.parameters(), *text_tower.parameters(), scale], lr=1e-2)
for step in range(12):
    images, words = torch.randn(8, 12), torch.randint(0, 20, (8, 5))
    a, b = F.normalize(image_tower(images), dim=1), F.normalize(text_tower(words), dim=1)
    logits = scale.exp() * a @ b.T
    target = torch.arange(8)
    loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))

"""Models as people write them: no batch, no loss, nothing to go by but the code."""

# ruff: noqa: A002  # an input is called input often enough

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Mnist(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x.view(x.size(0), -1))))


class MnistView(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x.view(-1, 28 * 28))))


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 6, 5)
        self.c2 = nn.Conv2d(6, 16, 5)
        self.f1 = nn.Linear(256, 120)
        self.f2 = nn.Linear(120, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        return self.f2(F.relu(self.f1(x.flatten(1))))


class LeNet32(LeNet):
    def __init__(self):
        super().__init__()
        self.f1 = nn.Linear(400, 120)


class Alex(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 11, 4, 2),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(16, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
        )
        self.cl = nn.Linear(32 * 13 * 13, 10)

    def forward(self, x):
        return self.cl(torch.flatten(self.features(x), 1))


class Audio(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Sequential(
            nn.Conv1d(1, 16, 80, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(4), nn.Conv1d(16, 16, 3), nn.ReLU()
        )
        self.f = nn.Linear(16, 35)

    def forward(self, x):
        x = self.c(x)
        return F.log_softmax(self.f(x.mean(-1)), -1)


class Vol(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv3d(1, 4, 3)
        self.f = nn.Linear(4, 2)

    def forward(self, volume):
        return self.f(self.c(volume).mean((2, 3, 4)))


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.es = nn.Embedding(50, 16)
        self.et = nn.Embedding(60, 16)
        self.enc = nn.GRU(16, 32, batch_first=True)
        self.dec = nn.GRU(16, 32, batch_first=True)
        self.o = nn.Linear(32, 60)

    def forward(self, src, tgt):
        _, h = self.enc(self.es(src))
        y, _ = self.dec(self.et(tgt), h)
        return self.o(y)


class NanoGPT(nn.Module):
    def __init__(self, block_size=12, vocab=65):
        super().__init__()
        self.block_size = block_size
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab, 16),
                "wpe": nn.Embedding(block_size, 16),
                "h": nn.ModuleList([nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)]),
            }
        )
        self.lm_head = nn.Linear(16, vocab)

    def forward(self, idx, targets=None):
        _, t = idx.size()
        assert t <= self.block_size, f"Cannot forward sequence of length {t}, block size is only {self.block_size}"
        x = self.transformer.wte(idx) + self.transformer.wpe(torch.arange(t))
        for h in self.transformer.h:
            x = h(x)
        logits = self.lm_head(x)
        loss = None if targets is None else F.cross_entropy(logits.view(-1, 65), targets.view(-1))
        return (logits, loss)


class EncDec(nn.Module):
    def __init__(self):
        super().__init__()
        self.se = nn.Embedding(40, 16)
        self.te = nn.Embedding(40, 16)
        self.tr = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
        self.g = nn.Linear(16, 40)

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.g(self.tr(self.se(src), self.te(tgt), src_mask=src_mask, tgt_mask=tgt_mask))


class AnnotatedTransformerish(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(40, 16)
        self.q = nn.Linear(16, 16)
        self.o = nn.Linear(16, 40)

    def forward(self, x, mask):
        h = self.e(x)
        q = self.q(h)
        sc = q @ h.transpose(-1, -2) / 4
        sc = sc.masked_fill(mask == 0, -1000000000.0)
        return self.o(sc.softmax(-1) @ h)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Linear(784, 32)
        self.m = nn.Linear(32, 8)
        self.v = nn.Linear(32, 8)
        self.d = nn.Linear(8, 784)

    def forward(self, x):
        h = F.relu(self.e(x.view(-1, 784)))
        mu, lv = (self.m(h), self.v(h))
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * lv)
        return (torch.sigmoid(self.d(z)), mu, lv)


class DDPM(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Embedding(1000, 16)
        self.c1 = nn.Conv2d(3, 16, 3, padding=1)
        self.c2 = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x, t):
        h = self.c1(x) + self.t(t)[:, :, None, None]
        return self.c2(F.silu(h))


class DDPM2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tm = nn.Sequential(nn.Linear(32, 16), nn.SiLU())
        self.c1 = nn.Conv2d(1, 16, 3, padding=1, stride=2)
        self.c2 = nn.ConvTranspose2d(16, 1, 4, 2, 1)

    def emb(self, t):
        f = torch.exp(-torch.arange(16) / 16.0)
        a = t[:, None].float() * f[None]
        return torch.cat([a.sin(), a.cos()], -1)

    def forward(self, x, timesteps):
        return self.c2(F.silu(self.c1(x) + self.tm(self.emb(timesteps))[..., None, None]))


class DCGAN_G(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(100, 16, 4, 1, 0),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 3, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, input):
        return self.main(input)


class DCGAN_D(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, 8, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(8, 16, 4, 2, 1),
            nn.BatchNorm2d(16),
            nn.LeakyReLU(0.2),
            nn.Conv2d(16, 32, 4, 2, 1),
            nn.Conv2d(32, 64, 4, 2, 1),
            nn.Conv2d(64, 1, 4, 1, 0),
            nn.Sigmoid(),
        )

    def forward(self, input):
        return self.main(input).view(-1)


class ImgText(nn.Module):
    def __init__(self):
        super().__init__()
        self.i = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 16))
        self.t = nn.Embedding(100, 16)
        self.h = nn.Linear(32, 5)

    def forward(self, image, text):
        return self.h(torch.cat([self.i(image), self.t(text).mean(1)], -1))


class DeepFM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(n, 4) for n in (10, 5, 7)])
        self.f = nn.Linear(12 + 6, 1)

    def forward(self, dense, sparse):
        e = torch.cat([emb(sparse[:, i]) for i, emb in enumerate(self.embs)], 1)
        return torch.sigmoid(self.f(torch.cat([e, dense], 1)))


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(20, 16)
        self.w2 = nn.Linear(16, 3)

    def forward(self, x, adj):
        return self.w2(adj @ F.relu(adj @ self.w1(x)))


class GCN2(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(20, 16)
        self.w2 = nn.Linear(16, 3)

    def forward(self, x, edge_index):
        src, dst = edge_index
        h = self.w1(x)
        out = torch.zeros_like(h).index_add(0, dst, h[src])
        return self.w2(F.relu(out))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 26 * 26, 16))

    def forward(self, x1, x2):
        return (self.n(x1), self.n(x2))


class DictBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(30, 16)
        self.f = nn.Linear(16, 2)

    def forward(self, batch):
        return {"logits": self.f(self.e(batch["input_ids"]).mean(1))}


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv1d(3, 16, 1)
        self.b = nn.BatchNorm1d(16)
        self.f = nn.Linear(16, 4)

    def forward(self, points):
        x = F.relu(self.b(self.c1(points.transpose(1, 2))))
        return self.f(x.max(-1)[0])


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Conv2d(3, 16, 16, 16)
        self.cls = nn.Parameter(torch.zeros(1, 1, 16))
        self.pos = nn.Parameter(torch.zeros(1, 197, 16))
        self.b = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.h = nn.Linear(16, 10)

    def forward(self, img):
        x = self.p(img).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.size(0), -1, -1), x], 1) + self.pos
        return self.h(self.b(x)[:, 0])


class ViTLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8 * 8 * 3, 16)
        self.pos = nn.Parameter(torch.zeros(1, 64, 16))
        self.h = nn.Linear(16, 10)

    def forward(self, x):
        B, C, H, W = x.shape
        x = x.reshape(B, C, H // 8, 8, W // 8, 8).permute(0, 2, 4, 3, 5, 1).reshape(B, -1, 8 * 8 * C)
        return self.h((self.l(x) + self.pos).mean(1))


class TE(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(30, 16)
        self.register_buffer("pe", torch.zeros(20, 1, 16))
        self.t = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 1, enable_nested_tensor=False)
        self.d = nn.Linear(16, 30)

    def forward(self, src, has_mask=True):
        src = self.e(src) * 4
        src = src + self.pe[: src.size(0)]
        return self.d(self.t(src))


class CNNLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.AdaptiveAvgPool2d(1))
        self.l = nn.LSTM(8, 16, batch_first=True)
        self.f = nn.Linear(16, 3)

    def forward(self, x):
        b, t, c, h, w = x.shape
        y = self.c(x.view(b * t, c, h, w)).view(b, t, -1)
        return self.f(self.l(y)[0][:, -1])


class Nerf(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(63, 32)
        self.d = nn.Linear(32 + 27, 16)
        self.o = nn.Linear(16, 4)

    def forward(self, x):
        p, v = torch.split(x, [63, 27], -1)
        return self.o(F.relu(self.d(torch.cat([F.relu(self.l(p)), v], -1))))


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Linear(8, 32)
        self.a = nn.Linear(32, 4)
        self.v = nn.Linear(32, 1)

    def forward(self, state):
        h = torch.tanh(self.b(state))
        return (F.softmax(self.a(h), -1), self.v(h))


class QSA(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(11 + 3, 32)
        self.o = nn.Linear(32, 1)

    def forward(self, state, action):
        return self.o(F.relu(self.l(torch.cat([state, action], 1))))


class Tab(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.Sequential(nn.BatchNorm1d(13), nn.Linear(13, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, features):
        return self.n(features).squeeze(-1)


class LSTMLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(30, 16)
        self.l = nn.LSTM(16, 24, 2)
        self.d = nn.Linear(24, 30)

    def forward(self, input, hidden):
        x, h = self.l(self.e(input), hidden)
        return (self.d(x), h)


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.GRUCell(5, 12)
        self.o = nn.Linear(12, 2)

    def forward(self, x, h):
        h = self.c(x, h)
        return (self.o(h), h)


class Lengths(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(30, 16)
        self.l = nn.LSTM(16, 24, batch_first=True)
        self.d = nn.Linear(24, 3)

    def forward(self, text, lengths):
        p = nn.utils.rnn.pack_padded_sequence(self.e(text), lengths, batch_first=True)
        _, (h, _) = self.l(p)
        return self.d(h[-1])


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.LazyConv2d(8, 3)
        self.l = nn.LazyLinear(10)

    def forward(self, x):
        return self.l(self.c(x).flatten(1))


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.EmbeddingBag(95, 16)
        self.f = nn.Linear(16, 4)

    def forward(self, text, offsets):
        return self.f(self.e(text, offsets))


class NCF(nn.Module):
    def __init__(self):
        super().__init__()
        self.u = nn.Embedding(100, 8)
        self.i = nn.Embedding(50, 8)
        self.f = nn.Linear(16, 1)

    def forward(self, user, item):
        return torch.sigmoid(self.f(torch.cat([self.u(user), self.i(item)], -1)))


class CLIPish(nn.Module):
    def __init__(self):
        super().__init__()
        self.v = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.Flatten(), nn.Linear(8 * 64, 16))
        self.t = nn.Embedding(40, 16)
        self.ls = nn.Parameter(torch.tensor(2.0))

    def forward(self, images, texts):
        a = F.normalize(self.v(images), dim=-1)
        b = F.normalize(self.t(texts).mean(1), dim=-1)
        return self.ls.exp() * a @ b.T


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.d1 = nn.Conv2d(1, 8, 3, padding=1)
        self.d2 = nn.Conv2d(8, 16, 3, 2, 1)
        self.u = nn.ConvTranspose2d(16, 8, 2, 2)
        self.o = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = F.relu(self.d1(x))
        b = F.relu(self.d2(a))
        return self.o(torch.cat([a, self.u(b)], 1))


class Informerish(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Linear(7, 16)
        self.t = nn.Linear(4, 16)
        self.proj = nn.Linear(96, 24)
        self.o = nn.Linear(16, 7)

    def forward(self, x_enc, x_mark_enc):
        h = self.e(x_enc) + self.t(x_mark_enc)
        return self.o(self.proj(h.transpose(1, 2)).transpose(1, 2))


class TupleBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(10, 16)
        self.o = nn.Linear(16, 2)

    def forward(self, batch):
        x, y = batch
        o = self.o(F.relu(self.a(x)))
        return F.cross_entropy(o, y)


class Cond(nn.Module):
    def __init__(self):
        super().__init__()
        self.y = nn.Embedding(10, 16)
        self.z = nn.Linear(64, 16)
        self.o = nn.Linear(32, 784)

    def forward(self, z, labels):
        return torch.tanh(self.o(torch.cat([self.z(z), self.y(labels)], 1))).view(-1, 1, 28, 28)


class BertIsh(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Embedding(99, 16)
        self.p = nn.Embedding(32, 16)
        self.t = nn.Embedding(2, 16)
        self.n = nn.LayerNorm(16)
        self.a = nn.MultiheadAttention(16, 2, batch_first=True)
        self.c = nn.Linear(16, 3)

    def forward(self, input_ids, token_type_ids, attention_mask):
        _, T = input_ids.shape
        x = self.n(self.w(input_ids) + self.p(torch.arange(T)) + self.t(token_type_ids))
        x, _ = self.a(x, x, x, key_padding_mask=attention_mask == 0)
        return self.c(x[:, 0])


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, t, x):
        return self.n(torch.cat([x, t[:, None]], -1))


class PINN(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x, t):
        x.requires_grad_(True)
        u = self.n(torch.cat([x, t], 1))
        (g,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        return (u, g)


class Wav(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.ModuleList([nn.Conv1d(8, 8, 2, dilation=2**i) for i in range(6)])
        self.i = nn.Conv1d(1, 8, 1)
        self.o = nn.Conv1d(8, 256, 1)

    def forward(self, waveform):
        x = self.i(waveform)
        for c in self.c:
            x = x[..., -(x.shape[-1] - c.dilation[0]) :] + torch.tanh(c(x))
        return self.o(x)


class Spec(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(1, 8, 3, padding=1)
        self.r = nn.GRU(8 * 64, 32, batch_first=True, bidirectional=True)
        self.o = nn.Linear(64, 29)

    def forward(self, x):
        x = F.relu(self.c(x))
        b, c, f, t = x.shape
        x = x.view(b, c * f, t).transpose(1, 2)
        return F.log_softmax(self.o(self.r(x)[0]), 2)


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(12, 5) * 0.1)
        self.b = nn.Parameter(torch.zeros(5))

    def forward(self, x):
        return x @ self.w + self.b


class FuncLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(5, 12) * 0.1)

    def forward(self, x):
        return F.linear(x, self.w)


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Mnist()
        self.outer = nn.Sequential(nn.Linear(10, 4))

    def forward(self, *inputs):
        return self.outer(self.inner(inputs[0]))


class Opt(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(30, 16)
        self.o = nn.Linear(16, 30)

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        h = self.o(self.e(input_ids))
        return {"logits": h, "loss": None if labels is None else F.cross_entropy(h.flatten(0, 1), labels.flatten())}


class SetTransf(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(6, 16)
        self.a = nn.MultiheadAttention(16, 2, batch_first=True)
        self.o = nn.Linear(16, 1)

    def forward(self, x):
        assert x.ndim == 3, "x must be (batch, set, 6)"
        h = self.f(x)
        return self.o(self.a(h, h, h)[0].mean(1))


class IntArg(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, n_iter: int):
        for _ in range(n_iter):
            x = torch.tanh(self.l(x))
        return x


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.Conv2d(3, 16, 8, 8)
        self.t = nn.Linear(16, 16)
        self.c = nn.Linear(16, 16)
        self.h = nn.Linear(16, 10)

    def forward(self, x):
        x = self.p(x).flatten(2)
        x = x + self.t(x)
        x = x.transpose(1, 2)
        return self.h((x + self.c(x)).mean(1))

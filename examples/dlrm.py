"""DLRM: an MLP over dense features, embedding bags over categorical ones, pairwise dot products of all of them, a top MLP."""

import torch
import torch.nn as nn

SIZES = {
    "full": {"batch": 2048, "dense": 13, "tables": 26, "rows": 20000, "width": 64, "bag": 4, "bottom": [512, 256], "top": [512, 256]},
    "small": {"batch": 32, "dense": 13, "tables": 5, "rows": 100, "width": 16, "bag": 3, "bottom": [32], "top": [32, 16]},
}
SIZE = SIZES["full"]


def mlp(widths, last):
    layers = []
    for a, b in zip(widths[:-1], widths[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1], last)


class Model(nn.Module):
    def __init__(self, dense: int, tables: int, rows: int, width: int, bottom: list, top: list):
        super().__init__()
        self.bottom = mlp([dense, *bottom, width], nn.ReLU())
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        vectors = tables + 1
        pairs = torch.tril_indices(vectors, vectors, offset=-1)  # every pair once, no vector with itself
        self.register_buffer("first", pairs[0], persistent=False)
        self.register_buffer("second", pairs[1], persistent=False)
        self.top = mlp([width + pairs.shape[1], *top, 1], nn.Sigmoid())

    def forward(self, dense, sparse):
        """dense (batch, features), sparse (tables, batch, bag): row numbers of every table's bag."""
        x = self.bottom(dense)
        vectors = torch.stack([x, *(bag(rows) for bag, rows in zip(self.bags, sparse.unbind(0)))], dim=1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2))
        pairs = dots[:, self.first, self.second]
        return self.top(torch.cat([x, pairs], dim=1)).squeeze(1)


def get_inputs():
    return [torch.randn(SIZE["batch"], SIZE["dense"]),
            torch.randint(0, SIZE["rows"], (SIZE["tables"], SIZE["batch"], SIZE["bag"]))]


def get_init_inputs():
    return [SIZE[k] for k in ("dense", "tables", "rows", "width", "bottom", "top")]

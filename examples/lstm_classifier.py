"""A two-layer LSTM over a sequence of embeddings; the last hidden state is classified."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, vocabulary, width, hidden, classes):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens):
        _, (hidden, _) = self.lstm(self.embedding(tokens))
        return self.head(hidden[-1])


vocabulary, width, hidden, classes = 50, 24, 32, 5


def get_inputs():
    return [torch.randint(0, vocabulary, (4, 12))]


def get_init_inputs():
    return [vocabulary, width, hidden, classes]

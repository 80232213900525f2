"""A two-layer GRU from a given state; only the states at the end are used."""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, input_size, hidden_size, num_layers):
        super().__init__()
        self.gru = nn.GRU(input_size, hidden_size, num_layers, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden_size, 10)

    def forward(self, x, h0):
        x, h = self.gru(x, h0)
        return self.head(x[:, -1]), h


batch_size = 16
sequence_length = 256
input_size = 96
hidden_size = 200
num_layers = 2


def get_inputs():
    return [torch.rand(batch_size, sequence_length, input_size), torch.rand(num_layers * 2, batch_size, hidden_size)]


def get_init_inputs():
    return [input_size, hidden_size, num_layers]

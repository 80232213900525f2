"""The Python side of stitchcuda: what must run inside PyTorch. Everything else is the C++ program."""

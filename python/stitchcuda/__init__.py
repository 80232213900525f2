"""The Python side of stitchcuda: everything that needs PyTorch, and nothing else."""

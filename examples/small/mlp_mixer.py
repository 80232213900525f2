"""examples/mlp_mixer.py at a size that the host target verifies in seconds."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import mlp_mixer  # noqa: E402
from mlp_mixer import Model, get_init_inputs, get_inputs  # noqa: E402, F401

mlp_mixer.SIZE = mlp_mixer.SIZES["small"]

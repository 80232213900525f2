"""examples/tcn.py at a size that the host target verifies in seconds."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tcn  # noqa: E402
from tcn import Model, get_init_inputs, get_inputs  # noqa: E402, F401

tcn.SIZE = tcn.SIZES["small"]

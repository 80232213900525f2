"""examples/dit_block.py at a size that the host target verifies in seconds."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import dit_block  # noqa: E402
from dit_block import Model, get_init_inputs, get_inputs  # noqa: E402, F401

dit_block.SIZE = dit_block.SIZES["small"]

"""examples/llama_block.py at a size that the host target verifies in seconds."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import llama_block  # noqa: E402
from llama_block import Model, get_init_inputs, get_inputs  # noqa: E402, F401

llama_block.SIZE = llama_block.SIZES["small"]

"""examples/whisper_encoder_layer.py at a size that the host target verifies in seconds."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import whisper_encoder_layer  # noqa: E402
from whisper_encoder_layer import Model, get_init_inputs, get_inputs  # noqa: E402, F401

whisper_encoder_layer.SIZE = whisper_encoder_layer.SIZES["small"]

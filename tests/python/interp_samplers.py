"""SAMPLERS: op -> a function that adds random nodes of that op to a program (interp_source.py)."""

import interp_samplers_elements  # noqa: F401  (register)
import interp_samplers_layers  # noqa: F401
import interp_samplers_shapes  # noqa: F401
from interp_source import SAMPLERS, Source  # noqa: F401

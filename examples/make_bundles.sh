#!/usr/bin/env bash
# Captures the small examples into the .stitch folders beside them (needs PyTorch; what they hold needs none).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${STITCHCUDA_PYTHON:-${STITCHCUDA_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/stitchcuda}/venv/bin/python}
cd "$root"
for name in conv_bn_relu lstm_classifier softmax_mlp; do
  PYTHONPATH=python "$python" -m stitchcuda.capture "examples/$name.py" -o "examples/$name.stitch"
done

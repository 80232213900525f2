#!/usr/bin/env bash
# All tests: ctest, then pytest. Argument: the build folder.
set -euo pipefail
build=${1:-build}
root=$(cd "$(dirname "$0")/.." && pwd)
home=${STITCHCUDA_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/stitchcuda}
status=0
ctest --test-dir "$build" -j "$(nproc)" --output-on-failure --no-tests=error || status=1
STITCHCUDA_BINARY="$(realpath "$build/stitchcuda")" PYTHONPATH="$root/python" "$home/venv/bin/python" -m pytest -q "$root/tests/python" || status=1
exit $status

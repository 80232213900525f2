#!/usr/bin/env bash
# All tests: ctest, then pytest. Arguments: the build folder, and "nightly" for the tests that take long too.
set -euo pipefail
build=${1:-build}
nightly=${2:-}
root=$(cd "$(dirname "$0")/.." && pwd)
home=${STITCHCUDA_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/stitchcuda}
status=0
# A temporary folder of their own shows whether the tests, and what they test, remove theirs. (PyTorch keeps compiled code for the next process.)
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
TMPDIR=$temporary ctest --test-dir "$build" -j "$(nproc)" --output-on-failure --no-tests=error || status=1
left=$(find "$temporary" -mindepth 1 -maxdepth 1 ! -name 'torchinductor_*' -printf ' %f')
[ -z "$left" ] || { echo "Temporary files were left behind:$left" >&2; status=1; }
selection=(-m "not nightly")
[ "$nightly" = nightly ] && selection=()
STITCHCUDA_BINARY="$(realpath "$build/stitchcuda")" PYTHONPATH="$root/python" "$home/venv/bin/python" -m pytest -q "${selection[@]}" "$root/tests/python" || status=1
exit $status

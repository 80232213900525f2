#!/usr/bin/env bash
# Warm `stitchcuda run` of the example: median of 5 whole processes, fresh output folder each, caches warm.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
for i in 0 1 2 3 4 5; do
  s=$(date +%s.%N)
  build/stitchcuda run examples/mini_gpt_block.py --out "$out/$i" > "$out/log" 2>&1
  e=$(date +%s.%N)
  [ "$i" = 0 ] || awk -v s="$s" -v e="$e" 'BEGIN { printf "%.2f\n", e - s }'
done | sort -n | awk '{ v[NR] = $1 } END { printf "warm run: median %.2f s, min %.2f s, max %.2f s (%d runs)\n", v[int((NR + 1) / 2)], v[1], v[NR], NR }'

#!/usr/bin/env bash
# Cold `make run` in a clean clone with an empty data folder and compiler cache, split into install / build / run.
# What apt already has installed on this machine is not installed again: "install" then covers the Python environment only (said in the output).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q "$root" "$work/stitchcuda"
cd "$work/stitchcuda"
export STITCHCUDA_HOME="$work/home" CCACHE_DIR="$work/ccache"
missing=$(sed -e 's/#.*//' scripts/apt-packages.txt | xargs -n1 | while read -r p; do dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || echo "$p"; done | wc -l)
now() { date +%s.%N; }
t0=$(now); scripts/setup.sh > "$work/setup.log" 2>&1
t1=$(now); make program > "$work/build.log" 2>&1
t2=$(now); make run > "$work/run.log" 2>&1
t3=$(now); make run > "$work/warm.log" 2>&1
t4=$(now)
awk -v a="$t0" -v b="$t1" -v c="$t2" -v d="$t3" -v e="$t4" -v m="$missing" -v n="$(nproc)" -v r="$(git -C "$root" rev-parse --short HEAD)" 'BEGIN {
  printf "commit %s, %d cores, %d apt packages installed in this run\n", r, n, m
  printf "install %8.1f s\nbuild   %8.1f s\nrun     %8.1f s\ntotal   %8.1f s\nwarm make run %.1f s\n", b-a, c-b, d-c, d-a, e-d }'

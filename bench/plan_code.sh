#!/usr/bin/env bash
# Time of the built-in Planner and Coder (plan + code steps) on the largest example, from the run store's record of each step.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
largest=$(for b in examples/*.stitch; do echo "$(grep -c '= ' "$b/program.json") $b"; done | sort -n | tail -1 | cut -d' ' -f2)
for input in "$largest" examples/mini_gpt_block.py; do
  build/stitchcuda run "$input" --target host --out "$out/x" > /dev/null 2>&1 || true
  python3 - "$out/x/events.jsonl" "$input" <<'P'
import json, sys
seconds = {e["step"]: e.get("seconds", 0) for e in map(json.loads, open(sys.argv[1])) if e["event"] == "step_finished"}
print(f"{sys.argv[2]}: plan {seconds['plan']:.3f} s + code {seconds['code']:.3f} s = {seconds['plan'] + seconds['code']:.3f} s")
P
  rm -rf "$out/x"
done

#!/usr/bin/env bash
# Incremental build after a change in one .cpp (a comment is appended, so that no cache can answer): per module, and restored afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --build build > /dev/null
for f in src/ir/parse.cpp src/plan/fusion.cpp src/loop/pipeline.cpp src/ui/commands.cpp; do
  cp -p "$f" /tmp/stitch_incremental.bak
  echo "// $(date +%s%N)" >> "$f"
  s=$(date +%s.%N); cmake --build build --target stitchcuda > /dev/null; e=$(date +%s.%N)
  cp -p /tmp/stitch_incremental.bak "$f"
  awk -v f="$f" -v s="$s" -v e="$e" 'BEGIN { printf "%-28s %.1f s\n", f, e - s }'
done
cmake --build build > /dev/null

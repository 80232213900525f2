#!/usr/bin/env bash
# Every figure of docs/figures.md that this machine can measure.
set -euo pipefail
cd "$(dirname "$0")"
./cold_run.sh
./warm_run.sh
./incremental_build.sh
./plan_code.sh

#!/usr/bin/env bash
# Installs what is missing to build and run stitchcuda on Debian 12 or Ubuntu 24.04: system packages by apt, a Python environment with
# PyTorch outside the checkout, and the CUDA compiler from PyPI where no toolkit is installed. Safe to run again: it
# installs nothing that is there. Set STITCHCUDA_HOME to move the environment (default ~/.local/share/stitchcuda).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
home=${STITCHCUDA_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/stitchcuda}
started=$(date +%s)

say() { printf '\033[1msetup\033[0m %s\n' "$*"; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else return 1; fi; }

# 1. System packages.
missing=()
while read -r package _; do
  [ -n "$package" ] || continue
  dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done < <(sed -e 's/#.*//' "$root/scripts/apt-packages.txt")
if [ ${#missing[@]} -gt 0 ]; then
  say "installing system packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  if ! { as_root apt-get update -qq && as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; }; then
    echo "setup: these packages could not be installed: ${missing[*]}. Install them as root (apt-get install ${missing[*]}) and run again." >&2
    exit 1
  fi
fi

# 2. Python environment: capture and the drop-in module need PyTorch; building and running .stitch bundles do not.
venv=$home/venv
want=$(sha256sum "$root/scripts/requirements.txt" | cut -c1-16)
if [ "$(cat "$venv/.requirements" 2>/dev/null)" != "$want" ]; then
  mkdir -p "$home"
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  say "installing PyTorch into $venv (about 6 GB on disk, once per machine)"
  if ! "$venv/bin/pip" install -q --disable-pip-version-check -r "$root/scripts/requirements.txt"; then
    echo "setup: PyTorch could not be installed; check the network and the disk space of $home ($(df -h --output=avail "$home" | tail -1 | tr -d ' ') left), then run again." >&2
    exit 1
  fi
  echo "$want" > "$venv/.requirements"
fi

# 3. CUDA compiler. PyTorch brings the CUDA libraries; nvcc comes from PyPI where no toolkit is installed.
has_nvcc() {
  command -v nvcc >/dev/null || compgen -G '/usr/local/cuda*/bin/nvcc' >/dev/null ||
    compgen -G "$venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc" >/dev/null
}
if ! has_nvcc; then
  say "installing the CUDA compiler from PyPI"
  "$venv/bin/pip" install -q --disable-pip-version-check -r "$root/scripts/requirements-cuda.txt" ||
    echo "setup: no CUDA compiler could be installed; only the host target will work." >&2
fi
elapsed=$(( $(date +%s) - started ))
[ "$elapsed" -lt 2 ] || say "ready after ${elapsed} s"

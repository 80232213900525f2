#!/usr/bin/env python3
"""Gathers verdict.json files into one table: bench/summarise.py VERDICT.json... > bench/results/NAME.json. Medians, spread and ratios come from the
verdicts as they are; nothing is computed anew but the geometric mean."""
import json
import math
import subprocess
import sys

rows = []
for path in sys.argv[1:]:
    v = json.load(open(path))
    latency = v.get("latency_ms") or {}
    rows.append({
        "program": v["program"], "device": v["device"], "valid": v["valid"], "correct": v["correct"], "error_max": v["precision"]["error"]["max"],
        "reference_error_max": (v["precision"].get("reference_error") or {}).get("max"), "precision": v["precision"]["class"],
        "latency_ms": {k: latency.get(k) for k in ("median", "p10", "p90")},
        "baselines_ms": {n: {k: b.get(k) for k in ("median", "p10", "p90")} for n, b in v["baselines"].items()},
        "speedup": v["speedup"], "guards_not_run": [g["name"] for g in v["guards"] if g["state"] == "not run"],
    })


def geomean(name):
    ratios = [r["speedup"][name]["ratio"] for r in rows if r["correct"] and name in r["speedup"]]
    return round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 3) if ratios else None


commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
names = sorted({n for r in rows for n in r["speedup"]})
print(json.dumps({"commit": commit, "summary": {"programs": len(rows), "correct": sum(r["valid"] and r["correct"] for r in rows), "geomean_over": {n: geomean(n) for n in names}}, "rows": rows}, indent=1))

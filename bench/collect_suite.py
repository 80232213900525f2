#!/usr/bin/env python3
"""Results of suite runs as one file a level: bench/collect_suite.py --commit C --machine M --out bench/results/h200_correct_level OUT...

Each OUT is the folder of a `stitchcuda suite kernelbench --step verify` run, finished or interrupted: its row.json files are the evidence. Of a problem met in
several folders the last verified row counts. A problem that was not verified is counted as such, never as correct."""
import argparse
import glob
import json

KEEP = ("level", "id", "name", "captured", "planned", "coded", "built", "verified", "correct", "correct_by_kernelbench", "reason", "sentence", "seconds", "nodes", "tasks",
        "kernels", "gpu_bytes", "workspace_bytes", "aten_ops", "tasks_by_skill", "max_error", "reference_max_error", "tolerance", "time_share")

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--commit", required=True, help="of the runs, in the order of their folders")
parser.add_argument("--machine", required=True)
parser.add_argument("--out", required=True, help="path without the level's number and .json")
parser.add_argument("runs", nargs="+")
options = parser.parse_args()

rows = {}
for run, commit in zip(options.runs, options.commit.split(",")):
    for path in glob.glob(run + "/**/row.json", recursive=True):
        row = json.load(open(path))
        row = {k: row.get(k) for k in KEEP} | {"commit": commit}
        key = (row["level"], row["id"])
        if key not in rows or row["correct"] is not None or rows[key]["correct"] is None:
            rows[key] = row
for level in sorted({k[0] for k in rows}):
    chosen = [rows[k] for k in sorted(rows) if k[0] == level]
    count = lambda field: sum(bool(r[field]) for r in chosen)  # noqa: E731
    verified = [r for r in chosen if r["correct"] is not None]
    summary = {"problems": len(chosen), "captured": count("captured"), "planned": count("planned"), "coded": count("coded"), "built": count("built"),
               "verified": len(verified), "correct": count("correct"), "wrong": sum(r["correct"] is False for r in chosen),
               "not_verified": len(chosen) - len(verified), "correct_by_kernelbench": sum(r["correct_by_kernelbench"] is True for r in chosen),
               "evaluated_by_kernelbench": sum(r["correct_by_kernelbench"] is not None for r in chosen)}
    with open(f"{options.out}{level}.json", "w") as f:
        json.dump({"commit": options.commit, "machine": options.machine, "summary": summary, "rows": chosen}, f, indent=1)
        f.write("\n")
    print(level, summary)

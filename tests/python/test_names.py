"""Names of a bundle that comes from anyone, through everything that writes them: C++, Python, JSON, HTML, the terminal."""

import ast
import html.parser
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.path.abspath(os.environ.get("STITCHCUDA_BINARY", ROOT / "build/stitchcuda"))
NASTY = ["*/", "/*", "a\\", "??/", "\"", "'", "'''\"\"\"", "</script><script>alert(1)</script>", "<b>&amp;", "{}", "%s", "@TARGET@", "@NAME@", "@WEIGHT_NAMES@", "naïve.w", "模型", "🙂", "a b", "a.b",
         "a_b", "int", "errno", "expf", "__", "w" * 4000]


def bundle(folder, name):
    generator = {"kind": "normal", "a": 0.0, "b": 1.0, "seed": 1}
    graph = ['%0: f32[2,3] = input() {name="x"}']
    graph += [f"%{i + 1}: f32[2,3] = weight() {{name={json.dumps(n)}}}" for i, n in enumerate(NASTY)]
    last = 0
    for i, n in enumerate(NASTY):
        node = len(NASTY) + 1 + i
        graph.append(f"%{node}: f32[2,3] = add(%{last}, %{i + 1}) {{scope={json.dumps(n)}, source={json.dumps(n + ':1')}}}")
        last = node
    graph.append(f"return %{last} {{name={json.dumps(name)}}}")
    entry = lambda n, **more: {"name": n, "dtype": "f32", "shape": [2, 3], "generator": generator, **more}
    program = {"format": "stitch", "version": 1, "name": name, "mode": "eval",
               "origin": {"file": "", "sha256": "", "kind": "hand", "torch_version": "", "seed": 1},
               "precision": {"allow_tf32_matmul": False, "allow_tf32_conv": False}, "graph": graph, "inputs": [entry("x")],
               "weights": [entry(n, parameter=True) for n in NASTY],
               "input_spec": {"tuple": [{"tensor": 0}]}, "output_spec": {"dict": {n + "\n": {"tensor": 0} for n in NASTY[:3]}}, "cases": [], "has_weights": False}
    folder.mkdir()
    (folder / "program.json").write_text(json.dumps(program), encoding="utf-8")
    return program


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)


def run(tmp_path, name):
    program = bundle(tmp_path / "nasty.stitch", name)
    out = tmp_path / "out"
    r = subprocess.run([BINARY, "run", tmp_path / "nasty.stitch", "--target", "host", "--out", out], capture_output=True, text=True, timeout=600,
                       env={**os.environ, "STITCHCUDA_HOME": str(tmp_path / "home"), "STITCHCUDA_PYTHON": sys.executable})
    assert r.returncode == 0, (r.stdout, r.stderr)
    return program, out, r.stdout + r.stderr


def test_nasty_names_are_only_text_in_every_file(tmp_path):
    name = "evil */ \\ ??/ \"'</title><script>@TARGET@@NAME@ 模型 \\"
    program, out, shown = run(tmp_path, name)
    assert all(c.isprintable() or c == "\n" for c in shown)
    values = {}
    for node in ast.parse((out / "model_new.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            literal = node.value.args[0] if isinstance(node.value, ast.Call) and node.value.args else node.value
            if isinstance(literal, ast.Constant):
                values[node.targets[0].id] = literal.value
    assert values["PROGRAM_NAME"] == name
    assert json.loads(values["WEIGHT_NAMES"]) == NASTY
    assert json.loads(values["OUTPUT_SPEC"]) == program["output_spec"]
    plan, verdict = (json.loads((out / f).read_text(encoding="utf-8")) for f in ("plan.json", "verdict.json"))
    assert plan["program"] == verdict["program"] == name and verdict["correct"]
    tags = Tags()
    tags.feed((out / "report.html").read_text(encoding="utf-8"))
    assert "script" not in tags.seen and "table" in tags.seen

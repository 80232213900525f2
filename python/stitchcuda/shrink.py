"""Small-size twins of KernelBench-style problem files: the same module with smaller constants, for machines without a GPU.

  python -m stitchcuda.shrink FILE.py -o SMALL.py                     find the constants of one file (shrink_search.py)
  python -m stitchcuda.shrink --kernelbench-root DIR --twins T.json   find those of all problems and write them to T.json
  python -m stitchcuda.shrink --kernelbench-root DIR --twins T.json -o FOLDER [--only 1/19,2/4]
                                                                      write FOLDER/levelN/NAME.py for those in T.json

A twin is a short file that loads the original by path and replaces integer literals in it; nothing of the original is copied. A
literal is named by where it stands:
  batch_size           the value of a module-level assignment        input_shape[1]      an element of its tuple or list
  hidden_sizes~0       the first literal of a longer expression
  get_inputs#2         the third integer literal of a function       Model.__init__#0    of a method
"""

import argparse
import ast
import json
import os
import sys

_INPUT_FUNCTIONS = ("get_inputs", "get_init_inputs")


def fold(node):
    """The integer that an expression of literals stands for, or None."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = fold(node.operand)
        return None if value is None else -value
    operations = {ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__}
    if isinstance(node, ast.BinOp) and type(node.op) in operations:
        left, right = fold(node.left), fold(node.right)
        return None if left is None or right is None else operations[type(node.op)](left, right)
    return None


class Literals(ast.NodeTransformer):
    """Finds every integer literal of a file, and replaces those that `constants` names. `found`: name -> original value."""

    def __init__(self, constants=None):
        self.constants = constants or {}
        self.found = {}
        self.scope = []
        self.counts = {}
        self.outside = False

    def value(self, key, node):
        number = fold(node)
        if number is None:
            return None
        self.found[key] = number
        return ast.copy_location(ast.Constant(self.constants[key]), node) if key in self.constants else node

    def visit_Assign(self, node):
        names = all(isinstance(t, ast.Name) for t in node.targets)
        if self.scope or not names and len(node.targets) != 1:
            return self.generic_visit(node)
        self.assign(node.targets[0], node)  # of `height = width = 64` the first name stands for both
        return node

    def visit_AnnAssign(self, node):
        if self.scope or node.value is None:
            return self.generic_visit(node)
        self.assign(node.target, node)
        return node

    def assign(self, target, node):
        names = target.elts if isinstance(target, (ast.Tuple, ast.List)) else None
        parts = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else None
        if isinstance(target, ast.Name) and parts is None:
            self.scope.append(target.id)
            self.outside = True
            node.value = self.value(target.id, node.value) or self.visit(node.value)
            self.outside = False
            self.scope.pop()
        elif isinstance(target, ast.Name) or names and parts and len(names) == len(parts):
            for i, part in enumerate(parts):
                name = f"{target.id}[{i}]" if names is None else ast.unparse(names[i])
                parts[i] = self.value(name, part) or part

    def visit_scope(self, node):
        self.scope.append(node.name)
        node = self.generic_visit(node)
        self.scope.pop()
        return node

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = visit_scope

    def number(self, node):
        if not self.scope or fold(node) is None:
            return None
        place = ".".join(self.scope)
        index = self.counts.get(place, 0)
        self.counts[place] = index + 1
        return self.value(f"{place}{'~' if self.outside else '#'}{index}", node)

    def visit_Constant(self, node):
        return self.number(node) or node

    def visit_BinOp(self, node):
        return self.number(node) or self.generic_visit(node)

    visit_UnaryOp = visit_BinOp


def read(file):
    with open(file, encoding="utf-8") as f:
        return ast.parse(f.read(), file)


def literals(file):
    """Name -> value of every integer literal of a file."""
    finder = Literals()
    finder.visit(read(file))
    return finder.found


def is_outside(key):
    """Whether a literal belongs to the sizes that the file itself chooses, and not to the definition of the module."""
    return "#" not in key or key.partition("#")[0] in _INPUT_FUNCTIONS


def load(file, constants, scope):
    """Runs a file with some of its literals replaced, in `scope`. This is what a twin does."""
    transformer = Literals(constants)
    tree = ast.fix_missing_locations(transformer.visit(read(file)))
    unknown = sorted(set(constants) - set(transformer.found))
    if unknown:
        raise ValueError(f"{file} has no literal {unknown[0]}; it has changed since its twin was made, make it again.")
    exec(compile(tree, file, "exec"), scope)  # noqa: S102 - the user's own problem file
    return scope


def twin_text(file, constants):
    return (f'"""Small-size twin of {os.path.basename(file)}: the same module with smaller constants. Written by python -m stitchcuda.shrink."""\n'
            "from stitchcuda.shrink import load\n\n"
            f"load({os.path.abspath(file)!r}, {constants!r}, globals())\n")


def write(path, text):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(temporary, path)


# KernelBench ------------------------------------------------------------------------------------------------------------------------
def problems(root, levels=(1, 2, 3)):
    """"LEVEL/ID" -> file."""
    found = {}
    for level in levels:
        folder = os.path.join(root, "KernelBench", f"level{level}")
        names = [n for n in os.listdir(folder) if n.endswith(".py") and n.partition("_")[0].isdigit()]
        for name in sorted(names, key=lambda n: int(n.partition("_")[0])):
            found[f"{level}/{int(name.partition('_')[0])}"] = os.path.join(folder, name)
    return found


def write_twins(root, twins, folder, only=None):
    """Writes the twins of a KernelBench checkout; gives "LEVEL/ID" -> file."""
    written = {}
    for key, file in problems(root).items():
        if key in twins and (only is None or key in only):
            written[key] = os.path.join(folder, f"level{key.partition('/')[0]}", os.path.basename(file))
            write(written[key], twin_text(file, twins[key]))
    return written


def twins_text(twins):
    lines = [f"  {json.dumps(key)}: {json.dumps(constants)}" for key, constants in twins.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _search_all(options):
    from .shrink_search import shrink
    twins = {}
    if os.path.exists(options.twins):
        with open(options.twins, encoding="utf-8") as f:
            twins = json.load(f)
    chosen = options.only.split(",") if options.only else None
    files = problems(options.kernelbench_root)
    for key, file in files.items():
        if chosen is None and key in twins or chosen is not None and key not in chosen:
            continue
        result = shrink(file)
        twins[key] = result.constants
        print(f"{key}: {result.text()}", file=sys.stderr, flush=True)
        write(options.twins, twins_text({k: twins[k] for k in files if k in twins}))
    return 0


def parser():
    p = argparse.ArgumentParser(prog="python -m stitchcuda.shrink", description=__doc__.splitlines()[0])
    p.add_argument("file", nargs="?", help="a KernelBench-style problem file")
    p.add_argument("-o", "--out", help="the twin to write, or with --kernelbench-root the folder for the twins")
    p.add_argument("--kernelbench-root", help="a checkout of KernelBench: all its problems")
    p.add_argument("--twins", help="JSON file with the constants of its twins, LEVEL/ID -> {literal: value}")
    p.add_argument("--only", help="some of its problems: 1/19,2/4")
    return p


def main(argv=None):
    options = parser().parse_args(argv)
    if options.kernelbench_root:
        if not options.twins:
            print("stitchcuda: --kernelbench-root needs --twins, the file with the twins' constants.", file=sys.stderr)
            return 2
        if not options.out:
            return _search_all(options)
        with open(options.twins, encoding="utf-8") as f:
            twins = json.load(f)
        write_twins(options.kernelbench_root, twins, options.out, options.only.split(",") if options.only else None)
        return 0
    if not options.file or not options.out:
        print("stitchcuda: give a problem file and -o, or --kernelbench-root.", file=sys.stderr)
        return 2
    from .errors import CaptureError
    from .shrink_search import shrink
    try:
        result = shrink(options.file)
    except CaptureError as error:
        print(f"stitchcuda: {error.message}", file=sys.stderr)
        return 2
    print(result.text(), file=sys.stderr)
    write(options.out, twin_text(options.file, result.constants))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How files depend on each other, and on what is private elsewhere.

Imports inside functions, and those for type checkers alone, count as any other.
"""

import ast
import collections
import itertools
import pathlib

import numpy as np
from scipy.sparse.csgraph import connected_components

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ("gpt1_keras", "training", "serving")


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    module_name(path): ast.parse(path.read_text())
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}


def imported(tree):
    """The modules of ours that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield from [each for each in (name, node.module) if each in FILES][:1]


def circles(graph):
    """The sets of names of which each leads to each other."""
    names = sorted({*graph, *(name for others in graph.values() for name in others)})
    number = {name: index for index, name in enumerate(names)}
    matrix = np.zeros((len(names), len(names)), bool)
    for name, others in graph.items():
        matrix[number[name], [number[other] for other in others if other != name]] = True
    count, labels = connected_components(matrix, connection="strong")
    found = [{names[i] for i in np.flatnonzero(labels == label)} for label in range(count)]
    return [circle for circle in found if len(circle) > 1]


def test_circles_are_found():
    graph = {"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"], "e": ["e"]}
    assert circles(graph) == [{"a", "b", "c"}]


def test_no_circle_of_files():
    graph = {name: set(imported(tree)) - {name} for name, tree in FILES.items()}
    assert sum(map(len, graph.values())) > 500
    assert circles(graph) == []


def test_no_circle_of_siblings():
    """What stands in one folder, files and folders, with all that is in these."""
    siblings = collections.defaultdict(lambda: collections.defaultdict(set))
    for name, tree in FILES.items():
        for other in imported(tree):
            pairs = zip(name.split("."), other.split("."))
            shared = [a for a, b in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]
            mine, theirs = (".".join(each.split(".")[: len(shared) + 1]) for each in (name, other))
            if mine != ".".join(shared) != theirs:  # else one is the other's package
                siblings[".".join(shared)][mine].add(theirs)
    assert {"gpt1_keras", "gpt1_keras.tasks", "serving"} <= set(siblings)
    assert [circle for graph in siblings.values() for circle in circles(graph)] == []


# === What is private elsewhere, and levels of inheritance ===

UPSTREAM = "gpt1_keras.upstream"  # the one file that may
# Of a named tuple, the system, argparse, TensorFlow and huggingface_hub.
NOT_OF_KERAS = {"_replace", "_exit", "_actions", "_registry", "_CACHED_NO_EXIST"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def private_names(tree, defined):
    """The private names that a file defines, or those that it uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names, defines = [node.attr], isinstance(node.ctx, ast.Store)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names, defines = [node.name], True
        elif isinstance(node, ast.keyword):  # which a function may make attributes of
            names, defines = [node.arg or ""], True
        elif isinstance(node, ast.Constant):  # the key of a dict, likewise
            names, defines = [node.value] if isinstance(node.value, str) else [], True
        elif isinstance(node, ast.Name):
            names, defines = [node.id], isinstance(node.ctx, ast.Store)
        elif isinstance(node, ast.ImportFrom) and not str(node.module).startswith(PACKAGES):
            names, defines = [alias.name for alias in node.names], False
        else:
            continue
        yield from (name for name in names if is_private(name) and defines == defined)


def test_one_file_knows_what_is_private_in_keras():
    others = {name: tree for name, tree in FILES.items() if name != UPSTREAM}
    ours = {each for tree in others.values() for each in private_names(tree, defined=True)}
    used = {name: set(private_names(tree, defined=False)) for name, tree in others.items()}
    assert "_flatten_layers" in set(private_names(FILES[UPSTREAM], defined=False)) - ours
    found = {name: names - ours - NOT_OF_KERAS for name, names in used.items()}
    assert {name: names for name, names in found.items() if names} == {}
    imports = [
        (name, node.module)
        for name, tree in others.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and str(node.module).startswith(("keras.src", "keras_hub.src"))
    ]
    assert imports == []


def calls_past_a_level(tree):
    """Calls of another class's method of the same name on `self`, and of `super` with a class."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            first = node.args[0] if node.args else None
            is_super = isinstance(node.func, ast.Name) and node.func.id == "super" and first
            is_method = isinstance(node.func, ast.Attribute) and node.func.attr == function.name
            on_self = isinstance(first, ast.Name) and first.id == "self"
            if is_super or is_method and on_self:
                yield ast.unparse(node)


def test_no_override_skips_a_level():
    bad = ast.parse("def fit(self):\n    keras.Model.fit(self)\n    super(Task, self).fit()")
    assert len(list(calls_past_a_level(bad))) == 2
    found = {(name, call) for name, tree in FILES.items() for call in calls_past_a_level(tree)}
    # KerasHub's `fit` fails on data of ids, which only Keras's takes: `keras_loops`.
    assert found == {(UPSTREAM, "super(PipelineModel, model)")}

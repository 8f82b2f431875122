"""Imports only point down, rows never import sideways, and heavy packages stay where they belong. Read from the syntax trees alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROWS = [
    {"types", "protocols", "errors", "artefacts", "progress", "locks", "seeds", "jsonl", "__init__"},
    {"data", "diffusion", "nn", "train", "metrics", "rollout"},
    {"world_model", "policy", "reward"},
    {"evaluation", "imagine", "rl", "guidance", "habc"},
    {"report"},
    {"flywheel"},
    {"apps"},
]
ROW_OF = {name: row for row, names in enumerate(ROWS) for name in names}
MODULES = sorted(path.relative_to(ROOT) for folder in ("robowm", "sim", "real_robot") for path in (ROOT / folder).rglob("*.py"))


def imports(path, *, top_level_only=False):
    """Return the dotted names that a module imports, relative ones resolved, type-checking blocks left out."""
    package = path.with_suffix("").parts[:-1]
    found = []

    def visit(node):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if top_level_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        if isinstance(node, ast.Import):
            found.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (
                ".".join([*package[: len(package) + 1 - node.level], *([node.module] if node.module else [])])
                if node.level
                else node.module
            )
            found.extend(f"{base}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse((ROOT / path).read_text()))
    return found


def part_of(dotted):
    """Return the part of robowm that a dotted name or a module's path lies in."""
    words = dotted.split(".")
    return words[1] if len(words) > 1 and words[1] in ROW_OF else "__init__"


def part_of_file(path):
    return path.parts[1].removesuffix(".py") if path.parts[0] == "robowm" else path.parts[0]


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] == "robowm"], ids=str)
def test_imports_point_down_and_never_sideways(path):
    here = part_of_file(path)
    assert here in ROW_OF, f"{here} has no row: add it to the design and to this test"
    for name in imports(path):
        if name.split(".")[0] == "robowm":
            there = part_of(name)
            down = ROW_OF[there] < ROW_OF[here]
            files_of_row_0 = ROW_OF[there] == ROW_OF[here] == 0
            assert down or there == here or files_of_row_0, f"{path} (row {ROW_OF[here]}) imports {name} (row {ROW_OF[there]})"


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] == "sim"], ids=str)
def test_the_simulators_know_the_nouns_alone(path):
    for name in imports(path):
        if name.split(".")[0] == "robowm":
            assert ROW_OF[part_of(name)] == 0, f"{path} imports {name}"
        assert name.split(".")[0] not in ("torch", "lerobot", "hydra", "real_robot"), f"{path} imports {name}"


def test_robowm_never_imports_a_simulator():
    assert [
        (path, name) for path in MODULES if path.parts[0] == "robowm" for name in imports(path) if name.split(".")[0] in ("sim", "mujoco")
    ] == []


@pytest.mark.parametrize(
    ("package", "where"),
    [
        ("hydra", "robowm/apps/"),
        ("omegaconf", "robowm/apps/"),
        ("lerobot.policies", "robowm/policy/lerobot"),
        ("accelerate", "robowm/train/distributed.py"),
        ("wandb", "robowm/train/log.py"),
        ("lpips", "robowm/metrics/"),
    ],
)
def test_foreign_packages_are_known_in_one_place(package, where):
    users = {str(path) for path in MODULES if any(name == package or name.startswith(f"{package}.") for name in imports(path))}
    assert {user for user in users if not user.startswith(where)} == set()


def test_the_report_needs_no_torch():
    loaded = "import sys, robowm.report.render; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "False"


def test_nothing_heavy_is_imported_for_the_list_of_verbs():
    code = "import sys; from robowm.apps.cli import main; main(['--help']); print(*(m.split('.')[0] for m in sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    heavy = {"torch", "lerobot", "mujoco", "hydra", "omegaconf", "numpy", "diffusers", "zarr", "wandb", "matplotlib"}
    assert heavy.isdisjoint(done.stderr.split())
    assert "flywheel" in done.stdout


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_no_pickle_no_bare_except_no_hard_coded_device(path):
    text = (ROOT / path).read_text()
    tree = ast.parse(text)
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.type is None]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            assert any(word.arg == "weights_only" and ast.unparse(word.value) == "True" for word in node.keywords), f"{path}:{node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not node.args:
            raise AssertionError(f"{path}:{node.lineno} moves something to a hard-coded device")


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_files_stay_under_400_lines_and_functions_under_60(path):
    text = (ROOT / path).read_text()
    assert len(text.splitlines()) < 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            length = node.end_lineno - node.body[0].lineno + 1 - (len(docstring.splitlines()) if docstring else 0)
            assert length < 60, f"{path}: {node.name} has {length} lines"

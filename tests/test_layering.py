"""The layout: which module may import which, and what stays unloaded."""

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "sample_factory"
# A module imports from its own package and from lower floors only. A module at the top of the package is a
# command, and may import any package.
FLOORS = {
    "runtime": 0,
    "config": 1,
    "spaces": 1,
    "algo": 2,
    "envs": 2,
    "models": 2,
    "checkpoints": 2,
    "families": 3,  # envs names them by strings
    "exchange": 3,
    "sampling": 4,
    "learning": 4,
    "monitoring": 5,
    "population": 5,
    "mainloop": 6,
    "launch": 7,
    "evaluation": 8,  # plays with the workers of a run, without a learner
    "cluster": 9,  # starts the workers of a run on each node
    "imitation": 9,
    "plotting": 9,
    "exporting": 9,  # loads policies as evaluation does
    "benchmarking": 10,
    "hub": 10,  # evaluates, converts, pushes and loads experiments
    "training": 10,
    "runner": 10,  # starts runs as commands, and draws their curves
    "version_2": 11,  # imports of scripts for version 2
}
NAMES_ONLY = {
    PACKAGE / "version_2" / "names.py",  # a list of where names of version 2 are now
    PACKAGE / "runtime" / "old_names.py",  # what answers an import for which no module is found
    PACKAGE / "config" / "algorithms.py",  # the command line reads what an algorithm declares beside its name
}
# A string that names an attribute of a module, which is imported when it is resolved.
NAMED = re.compile(r"(sample_factory(?:\.\w+)+):\w+")


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULE_NAMES = {module_name(path) for path in modules()}


def nodes(tree: ast.AST, with_types: bool) -> Iterator[ast.AST]:
    """Yields all nodes of a module; with_types: those under `if TYPE_CHECKING:` too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING") and not with_types:
            yield from (inner for other in node.orelse for inner in ast.walk(other))
        else:
            yield node
            yield from nodes(node, with_types)


def imported(path: Path, at_once: bool = False) -> Iterator[str]:
    """Yields the name of each sample_factory module that a file imports, also inside functions.

    at_once: without those that it imports for types only, or names in a string "module:attribute": a registry
    names modules of its own package that import the registry.
    """
    for node in nodes(ast.parse(path.read_text()), with_types=not at_once):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and path not in NAMES_ONLY:
            named = NAMED.fullmatch(node.value)
            names = [] if named is None or at_once else [named[1]]
        for name in names:
            if name.split(".")[0] == "sample_factory":
                yield name if name in MODULE_NAMES else name.rpartition(".")[0]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path):
    parts = path.relative_to(PACKAGE).parts
    own = parts[0] if len(parts) > 1 else None
    if own is None:
        return  # a command
    for name in imported(path):
        package = name.split(".")[1] if "." in name else name
        assert package in FLOORS, f"{path.name} imports {name}, a module of the top"
        assert package == own or FLOORS[package] < FLOORS[own], f"{'/'.join(parts)} imports {name}"


def test_no_modules_import_each_other_in_a_circle():
    graph = {module_name(path): set(imported(path, at_once=True)) for path in modules()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_every_package_has_a_floor():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == set(FLOORS)


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import sample_factory", ("torch", "gymnasium", "vizdoom", "tensorboard", "pandas")),
        (
            "from sample_factory import enjoy, train\n"
            "from sample_factory.__main__ import command\n"
            "command('match'), command('play_doom')",
            ("torch", "gymnasium", "vizdoom"),
        ),
        (
            "import sample_factory.__main__ as main; main.declaration('benchmark')",
            ("torch", "gymnasium", "vizdoom", "matplotlib"),
        ),
        ("import sample_factory.training.run", ("torch", "tensorflow", "vizdoom", "wandb")),
        ("import sample_factory.evaluation.measurement", ("torch", "tensorflow", "vizdoom")),
        (
            "import sample_factory.sampling.rollout.rollout_worker\n"
            "from sample_factory.envs.env_registry import resolve_family\n"
            "resolve_family('doom_basic'), resolve_family('gym_CartPole-v1')",
            ("torch", "tensorflow", "tensorboard"),
        ),
        (
            "import sample_factory.training.run\n"
            "from sample_factory.launch.workers import FACTORIES\n"
            "from sample_factory.runtime.registry import import_attribute\n"
            "list(map(import_attribute, FACTORIES.values()))",
            ("ray", "zstandard"),  # on one machine
        ),
        (
            "import pathlib, tempfile\n"
            "from sample_factory.monitoring.summaries import TensorboardWriter\n"
            "with tempfile.TemporaryDirectory() as folder:\n"
            "    writer = TensorboardWriter(pathlib.Path(folder))\n"
            "    writer.write({'a': 1.0}, 0), writer.write_first_page(0)",
            ("torch", "tensorflow"),
        ),
        (
            "from sample_factory.runtime.queues import make_queue\nmake_queue('sockets')",
            ("faster_fifo", "multiprocessing.heap"),
        ),
        (
            "from sample_factory.config.versions import versions\nassert versions()['torch']",
            ("torch", "gymnasium"),
        ),
    ],
)
def test_importing_stays_light(statement, absent):
    program = f"{statement}\nimport sys\nprint([name for name in {absent!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["runtime", "exchange", "sampling", "cluster"])
def test_what_guards_shared_memory_and_other_machines_is_no_assertion(package):
    """`python -O` leaves assertions out. What remains tells the type checker what is known already."""
    guards = []
    for path in sorted((PACKAGE / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert) and not re.search(
                r" is not None|^isinstance", ast.unparse(node.test)
            ):
                guards.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert not guards

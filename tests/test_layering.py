"""The layout: which folders there are, which module may import which, and what stays unloaded."""

import ast
import graphlib
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
    "runner": 10,  # starts runs as commands, and draws their curves
    "version_2": 10,  # imports of scripts for version 2
}
TOP_LEVEL = {
    "sample_factory",
    "examples",
    "tests",
    "configs",
    "pyproject.toml",
    "environment.yml",
    "README.md",
    "all_tests.sh",
    "LICENSE",
    ".ci",
    ".github",
    ".gitignore",
    ".pre-commit-config.yaml",
}
COMMANDS = {
    "__main__",
    "train",
    "enjoy",
    "eval",
    "export",
    "match",
    "imitate",
    "play_doom",
    "dummy_sampler",
    "benchmark",
    "run_algorithm",
    "tb",
}
MAX_COMMAND_LINES = 60
MAX_FOLDERS = 2  # below the package
FORBIDDEN_NAMES = {"utils", "common", "base", "helpers", "misc"}


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


def imported(path: Path, with_types: bool = True) -> Iterator[str]:
    """Yields the name of each sample_factory module that a file imports, also inside functions."""
    for node in nodes(ast.parse(path.read_text()), with_types):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
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
    graph = {module_name(path): set(imported(path, with_types=False)) for path in modules()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_every_package_has_a_floor():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == set(FLOORS)


def test_the_top_of_the_package_holds_short_commands_only():
    commands = {path.stem: path for path in PACKAGE.glob("*.py") if path.stem != "__init__"}
    assert set(commands) == COMMANDS
    lines = {name: len(path.read_text().splitlines()) for name, path in commands.items()}
    assert max(lines.values()) <= MAX_COMMAND_LINES, lines


def test_the_top_level_holds_nothing_else():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout: unknown which files belong to the project")
    assert {path.partition("/")[0] for path in listed.stdout.splitlines()} == TOP_LEVEL


def test_no_module_or_folder_is_a_drawer():
    places = [path for folder in (PACKAGE, ROOT / "tests") for path in folder.rglob("*")]
    assert not [path for path in places if path.stem in FORBIDDEN_NAMES]


def test_modules_lie_at_most_two_folders_below_the_package():
    assert not [path for path in modules() if len(path.relative_to(PACKAGE).parts) > MAX_FOLDERS + 1]


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import sample_factory", ("torch", "gymnasium", "vizdoom", "tensorboard", "pandas")),
        (
            "from sample_factory import enjoy, match, play_doom, train",
            ("torch", "gymnasium", "vizdoom"),
        ),
        ("import sample_factory.benchmark", ("torch", "gymnasium", "vizdoom", "matplotlib")),
        ("import sample_factory.launch.run", ("torch", "tensorflow", "vizdoom", "wandb")),
        ("import sample_factory.evaluation.measure", ("torch", "tensorflow", "vizdoom")),
        (
            "import sample_factory.sampling.rollout.rollout_worker\n"
            "from sample_factory.envs.env_registry import resolve_family\n"
            "resolve_family('doom_basic'), resolve_family('gym_CartPole-v1')",
            ("torch", "tensorflow", "tensorboard"),
        ),
    ],
)
def test_importing_stays_light(statement, absent):
    program = f"{statement}\nimport sys\nprint([name for name in {absent!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

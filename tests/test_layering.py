"""A module imports from its own package and from lower floors only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "sample_factory"
FLOORS = {
    "runtime": 0,
    "config": 0,
    "spaces": 0,
    "algo": 1,
    "envs": 1,
    "models": 1,
    "checkpoints": 1,
    "exchange": 2,
    "sampling": 3,
    "learning": 3,
    "monitoring": 4,
    "population": 4,
    "evaluation": 5,
    "experiment": 6,
    "plotting": 7,
    "benchmarking": 8,
}
# A module that packages on its own floor may import: nothing. Of the top modules, each may import any
# package.
FORBIDDEN_NAMES = {"utils", "common", "base", "helpers", "misc"}


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def imported(path):
    """Every sample_factory module that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "sample_factory"
                else [node.module]
            )
        yield from (name for name in names if name and name.startswith("sample_factory."))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path):
    parts = path.relative_to(PACKAGE).parts
    own = parts[0] if len(parts) > 1 else None
    if own is None:
        return  # the top
    for name in imported(path):
        package = name.split(".")[1]
        assert package in FLOORS, f"{path.name} imports {name}, a module of the top"
        assert package == own or FLOORS[package] < FLOORS[own], f"{'/'.join(parts)} imports {name}"


def test_every_package_has_a_floor():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == set(FLOORS)


def test_no_drawer_modules():
    assert not [path for path in modules() if path.stem in FORBIDDEN_NAMES]


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import sample_factory", ("torch", "gymnasium", "vizdoom")),
        (
            "from sample_factory import enjoy, match, play_doom, train",
            ("torch", "gymnasium", "vizdoom"),
        ),
        ("import sample_factory.benchmark", ("torch", "gymnasium", "vizdoom", "matplotlib")),
        ("import sample_factory.experiment.run", ("torch", "tensorflow", "vizdoom")),
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

"""Imports of versions 1 and 2."""

import importlib
import os
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sample_factory.__main__ import COMMANDS
from sample_factory.runtime.registry import import_attribute
from sample_factory.version_2.finder import full_name
from sample_factory.version_2.names import MODULES, NAMES

ROOT = Path(__file__).parents[2]
WORKING = [
    (module, name, target)
    for module, names in NAMES.items()
    for name, target in names.items()
    if " " not in target
]
ADVICE = [
    (module, name, target)
    for module, names in NAMES.items()
    for name, target in names.items()
    if " " in target
]


@pytest.mark.parametrize(("module", "name", "target"), WORKING)
def test_a_name_that_is_here_is_imported_from_its_old_place(module, name, target):
    assert getattr(importlib.import_module(full_name(module)), name) is import_attribute(target)


@pytest.mark.parametrize(("module", "name", "advice"), ADVICE)
def test_a_name_that_is_not_here_fails_with_what_to_write(module, name, advice):
    with pytest.raises(ImportError) as failed:
        exec(f"from {full_name(module)} import {name}")
    assert str(failed.value) == f"{full_name(module)}.{name} is not in this version: {advice}"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("import sample_factory.huggingface.huggingface_utils", "hub/README.md"),
        ("from sample_factory.model import unknown", "config/MIGRATING.md"),
        ("from sample_factory.launcher import run_slurm", "sample_factory/runner/README.md"),
        ("import sf_examples.nethack.train_nethack", "its envs and networks are built in"),
        # Version 1
        ("from sample_factory.run_algorithm import run_algorithm", r"sample_factory\.train\.main\(argv\)"),
        ("import sample_factory.envs.doom.wrappers.reward_shaping", "families/doom/README.md"),
        ("from sample_factory.envs.dmlab.dmlab_env import DmLabSpec", "envs/README.md"),
        ("from sample_factory.envs import env_config", "config/MIGRATING.md"),
        ("from sample_factory.runner.runs.doom_basic import RUN_DESCRIPTION", "runner/README.md"),
        ("from sample_factory.algorithms.appo.learner import LearnerWorker", "config/MIGRATING.md"),
        ("import sample_factory_examples.train_gym_env", "--env=gym_ID"),
        ("from sample_factory_examples.train_custom_multi_env import main", "custom_env.py"),
    ],
)
def test_any_other_module_of_version_2_fails_with_one_line(statement, message):
    with pytest.raises(ImportError, match=message) as failed:
        exec(statement)
    assert "is not in this version" in str(failed.value) and "\n" not in str(failed.value)


@pytest.mark.parametrize("module", [module for module, names in NAMES.items() if "main" in names])
def test_a_command_of_version_2_is_started_by_its_old_name(module, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["old", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(
            f"sample_factory.{module}", run_name="__main__", alter_sys=True
        )  # as `python -m` does
    assert not ended.value.code
    names = {target.partition(":")[0]: name for name, (target, _) in COMMANDS.items()}
    main = NAMES[module]["main"].partition(":")[0]
    name = names.get(main, main.rpartition(".")[2])
    printed = capsys.readouterr()
    assert printed.out.startswith(f"usage: python -m sample_factory {name} ") and printed.err == ""


FIRST_IMPORTS = """
import os, sys
before = list(sys.meta_path), list(sys.path_hooks)
import sample_factory
from sample_factory.algo import advantages
from sample_factory.envs import env_registry
assert before == (sys.meta_path, sys.path_hooks)
for statement in sys.argv[1:]:
    if os.fork() == 0:
        exec(statement)
        sys.exit()
    assert os.wait()[1] == 0, statement
"""


def test_the_first_import_of_an_old_name_works_and_no_import_before_it_installs_the_finder():
    statements = (
        "from sample_factory.algo.utils.context import global_model_factory",
        "from sample_factory.cfg.arguments import parse_full_cfg",
        "from sample_factory.envs.env_utils import register_env",
        "from sample_factory.train import run_rl",
        "from sample_factory.envs.env_registry import global_env_registry",
        "from sample_factory.utils.utils import log; import sf_examples.vizdoom.train_vizdoom",
    )
    subprocess.run([sys.executable, "-c", FIRST_IMPORTS, *statements], check=True)


def test_modules_that_never_were_and_modules_that_are_here_are_found_as_usual():
    with pytest.raises(ModuleNotFoundError, match="No module named 'sample_factory.nothing'"):
        exec("import sample_factory.nothing")
    for path in MODULES:
        assert importlib.util.find_spec("sample_factory.config") is not None
        assert not path.startswith("config")
    for module in (
        "sf_examples_of_mine",
        "sample_factory_examples2",
        "envs",
        "runner",
        "utils",
        "algorithms",
    ):
        assert importlib.util.find_spec(module) is None, "names of a user's own"
    from sample_factory.algo import losses
    from sample_factory.envs import env_registry

    assert losses.__file__ and env_registry.__file__
    assert not hasattr(env_registry, "nothing"), "an AttributeError, as of any module"


def test_the_examples_package_may_be_imported_first(tmp_path):
    folder = ROOT / "sample_factory" / "version_2" / "sf_examples"
    (tmp_path / folder.name).symlink_to(folder)  # as it is installed
    find = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    assert str(folder.parent.relative_to(ROOT)) in find["where"] and folder.name in find["include"]

    def run(code):
        env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)

    works = run("from sf_examples.vizdoom.train_vizdoom import parse_vizdoom_cfg; print(parse_vizdoom_cfg)")
    assert works.stdout.startswith("<function parse_cfg") and works.returncode == 0
    fails = run("import sf_examples.nethack.train_nethack").stderr.splitlines()[-1]
    assert "sf_examples.nethack is not in this version: " in fails


def test_a_star_imports_the_names_that_are_here():
    names = {}
    exec("from sample_factory.model.encoder import *", names)
    assert {"Encoder", "nn", "torch", "nonlinearity", "spaces", "Config"} <= names.keys()
    assert "make_img_encoder" not in names


def test_an_old_module_that_is_installed_is_the_one_that_is_imported(tmp_path, monkeypatch):
    (tmp_path / "sample_factory_examples").mkdir()
    (tmp_path / "sample_factory_examples" / "own.py").write_text("x = 3")
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("sample_factory_examples.own")
    assert own.x == 3
    for name in ("sample_factory_examples", "sample_factory_examples.own"):
        monkeypatch.delitem(sys.modules, name)

"""Imports the module that describes a grid."""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from sample_factory.config.flags import ConfigError
from sample_factory.runner.run_description import Experiment, RunDescription
from sample_factory.runtime.failures import CommandFailed, one_line

VARIABLE = "RUN_DESCRIPTION"


def load_description(run: str) -> RunDescription:
    """Returns RUN_DESCRIPTION of a module, or of a file whose name ends in .py.

    Raises ConfigError if there is no such module or variable; CommandFailed, from the exception of the
    module, if its import raises.
    """
    try:
        module = _import_file(Path(run)) if run.endswith(".py") else _import_module(run)
    except ConfigError:
        raise
    except Exception as error:
        raise CommandFailed(f"--run={run}: {one_line(error)}") from error
    described = vars(module).get(VARIABLE)
    if not isinstance(described, RunDescription):
        has = "is no RunDescription" if VARIABLE in vars(module) else "is missing"
        raise ConfigError(
            f"--run={run}: {VARIABLE} {has}; write {VARIABLE} = RunDescription('my_grid', experiments=[...])"
        )
    others = [item for item in described.experiments if not isinstance(item, Experiment)]
    if others:
        raise ConfigError(f"--run={run}: experiments should be Experiment objects, not {others[0]!r}")
    return described


def _import_module(name: str) -> Any:
    """Raises ConfigError if there is no such module, and whatever its import raises."""
    if "" not in sys.path:
        sys.path.insert(0, "")  # a console script does not search the working directory
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a module that the description imports
        raise ConfigError(
            f"--run={name}: there is no module {error.name}; give a module that can be imported from here, "
            "like my_package.my_grid, or a file like my_grid.py"
        ) from None


def _import_file(path: Path) -> Any:
    if not path.is_file():
        raise ConfigError(f"--run={path}: there is no such file")
    sys.path.insert(0, str(path.parent.absolute()))  # as for a script: it may import what lies beside it
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "the name ends in .py"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

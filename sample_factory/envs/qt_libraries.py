"""Qt 5, with which EnvPool draws Procgen, from the wheel PyQt5-Qt5: no Qt of the system is needed."""

import ctypes
import importlib
import importlib.util
from pathlib import Path

from sample_factory.envs.packages import MissingPackage, missing_package

PROCGEN = "envpool.procgen"
LIBRARIES = ("libQt5Core.so.5", "libQt5Gui.so.5")  # in the order in which they need each other


def import_procgen() -> None:
    """Imports EnvPool's Procgen with Qt of the wheel if that is installed, otherwise of the system.

    Raises MissingPackage if there is no Qt, or if the wheel lacks a library of the system.
    """
    folder = _folder_of_wheel()
    if folder is not None:
        _load(folder)
    module = importlib.import_module(PROCGEN)
    if "ProcgenEnvSpec" not in vars(module):  # imported by EnvPool itself before Qt was there
        module = importlib.reload(module)
    if "ProcgenEnvSpec" not in vars(module):
        raise missing_package("EnvPool's Procgen", "PyQt5-Qt5", extra="procgen")


def _folder_of_wheel() -> Path | None:
    spec = importlib.util.find_spec("PyQt5")
    for package in spec.submodule_search_locations or () if spec else ():
        folder = Path(package) / "Qt5" / "lib"
        if (folder / LIBRARIES[0]).is_file():
            return folder
    return None


def _load(folder: Path) -> None:
    for name in LIBRARIES:
        try:
            ctypes.CDLL(str(folder / name))
        except OSError as error:
            raise MissingPackage(
                f"Qt 5, with which Procgen is drawn, does not load ({error}); on Debian and Ubuntu: "
                "apt-get install libgl1 libglib2.0-0"
            ) from error

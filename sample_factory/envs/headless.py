"""Whether there is a display, and how envs are drawn without one."""

import ctypes.util
import os

SDL_DRIVER = "SDL_VIDEODRIVER"
# Values of MUJOCO_GL that need no display, the faster one first -> the library that each needs.
MUJOCO_LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}


def has_display() -> bool:
    """Returns whether this machine seems to have a display on which a window can open."""
    # Without a display SDL would draw on the text console, and occupy it.
    sdl_driver = os.environ.get(SDL_DRIVER, "dummy")
    has_server = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return has_server or sdl_driver != "dummy"


def prepare_sdl() -> None:
    """Makes SDL, the library of pygame, draw without a display if there is none. To be called before SDL
    starts."""
    if not has_display():
        os.environ[SDL_DRIVER] = "dummy"  # otherwise SDL reports a missing XDG_RUNTIME_DIR


def prepare_mujoco() -> None:
    """Selects a driver with which MuJoCo draws without a display, where none is selected.

    Call it only where a MuJoCo env may draw, and before the env is made: importing MuJoCo fails if the driver
    does not work.
    """
    found = [value for value, library in MUJOCO_LIBRARIES.items() if ctypes.util.find_library(library)]
    if found:
        os.environ.setdefault("MUJOCO_GL", found[0])

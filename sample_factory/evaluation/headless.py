"""Whether there is a display, and how envs are drawn without one."""

import ctypes.util
import os
import sys

MUJOCO_GL = "MUJOCO_GL"
# Values of MUJOCO_GL that need no display, the faster one first -> the library that each needs.
MUJOCO_LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}


def has_display() -> bool:
    """Returns whether a window can be expected to open; only Linux can be asked."""
    # Without a display SDL would draw on the text console, and occupy it.
    sdl_driver = os.environ.get("SDL_VIDEODRIVER", "dummy")
    has_server = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return has_server or sdl_driver != "dummy" or not sys.platform.startswith("linux")


def draw_offscreen() -> None:
    """Selects the drivers with which SDL and MuJoCo draw without a display, where none are selected.

    Call it before the env is made: the libraries read these variables when they are imported.
    """
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # otherwise SDL reports a missing XDG_RUNTIME_DIR
    found = [value for value, library in MUJOCO_LIBRARIES.items() if ctypes.util.find_library(library)]
    if found:
        os.environ.setdefault(MUJOCO_GL, found[0])

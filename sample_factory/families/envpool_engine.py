"""EnvPool for all families: it steps the copies of an env in C++ threads of the process that uses it."""

import ctypes
import importlib
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sample_factory.config.flags import ConfigError, flag
from sample_factory.envs.env_family import UnknownEnvError
from sample_factory.envs.family_flags import ENVPOOL, parse_env_kwargs, vector_env_copies_flag
from sample_factory.envs.headless import has_display
from sample_factory.envs.packages import MissingPackage, is_installed, missing_package
from sample_factory.envs.protocol import EnvConfig
from sample_factory.runtime.cpu import cpu_limit, num_usable_cores
from sample_factory.runtime.failures import one_line
from sample_factory.runtime.registry import did_you_mean

if TYPE_CHECKING:
    from sample_factory.families.envpool_vector_env import EnvPoolVectorEnv

PREFIX = "envpool_"
COPIES = 64  # as in version 2
# Qt 5, with which EnvPool draws Procgen, of the wheel PyQt5-Qt5; in the order in which they need each other.
QT_LIBRARIES = ("libQt5Core.so.5", "libQt5Gui.so.5")
PROCGEN = "envpool.procgen"
# Arguments of envpool.make_gymnasium -> the flag that sets them in every family.
FLAG_OF_OPTION = {
    "num_envs": "vector_env_copies",
    "batch_size": "vector_env_copies",  # a step is one of all copies
    "num_threads": "envpool_num_threads",
    "thread_affinity_offset": "envpool_thread_affinity_offset",
    "seed": "seed",
}


@dataclass(frozen=True)
class EnvPoolFlags:
    """Flags of all families that can use EnvPool. Another family inherits them."""

    vector_env_copies: int = vector_env_copies_flag(COPIES)
    envpool_num_threads: int = flag(
        0,
        "threads that step the copies of an env; 0: the cores of the machine, divided among the processes "
        "with envs",
        at_least=0,
        at_most=10_000,
        only_with={"env_engine": (ENVPOOL,)},
    )
    envpool_thread_affinity_offset: int = flag(
        -1,
        "pin the threads of EnvPool: those of the first worker to this core and the following ones, those "
        "of the next worker to the cores after them; -1: do not pin them",
        at_least=-1,
        at_most=10_000,
        only_with={"env_engine": (ENVPOOL,)},
    )


def options_of_user(cfg: Any, flags: Mapping[str, str] = {}) -> dict[str, Any]:
    """Returns the arguments of EnvPool that the user gives by --env_kwargs.

    flags: argument -> name of the family's flag that sets it. Raises ConfigError, with the flag to use, if
        --env_kwargs sets one of these arguments.
    """
    options = parse_env_kwargs(cfg.env_kwargs)
    for name, flag_name in {**FLAG_OF_OPTION, **flags}.items():
        if name in options:
            raise ConfigError(f"--env_kwargs: use --{flag_name}={options[name]} for {name}")
    return options


def make_envpool(
    task_id: str,
    cfg: Any,
    env_config: EnvConfig,
    /,
    num_envs: int | None = None,
    render_mode: str | None = None,
    **options: Any,
) -> "EnvPoolVectorEnv":
    """Makes `num_envs` copies of EnvPool's env `task_id` as one vector env, even for a single copy.

    cfg: has the flags of EnvPoolFlags, and the flags that say how many processes step envs.
    num_envs: number of copies; None: --vector_env_copies.
    options: further arguments of envpool.make_gymnasium, such as frame_skip=4; for the user's, see
        `options_of_user`.

    Raises UnknownEnvError with the nearest id, MissingPackage with the extra to install, and ConfigError for
    options that the env does not accept.
    """
    suite = suite_of(task_id)
    if render_mode is not None and suite.startswith("mujoco.") and not has_display():
        # EnvPool would end the process.
        raise ConfigError(f"EnvPool cannot draw {task_id} without a display; mujoco_ and gym_ envs can")
    from sample_factory.families.envpool_vector_env import EnvPoolVectorEnv

    copies = cfg.vector_env_copies if num_envs is None else num_envs
    threads = cfg.envpool_num_threads or _threads_of_process(cfg)
    options |= {"num_envs": copies, "num_threads": min(threads, copies)}
    if cfg.envpool_thread_affinity_offset >= 0:
        first = cfg.envpool_thread_affinity_offset + env_config.worker_index * threads
        options["thread_affinity_offset"] = first
    if suite == "procgen":
        import_procgen()
    try:
        return EnvPoolVectorEnv(task_id, options, render_mode)
    except (TypeError, ValueError, AssertionError, ImportError) as error:
        raise ConfigError(f"env {PREFIX}{task_id} cannot be made: {one_line(error)}") from error


def suite_of(task_id: str) -> str:
    """Returns the suite of an id, e.g. "atari", "mujoco.gym" or "classic_control".

    Raises UnknownEnvError for an id that EnvPool does not have, and MissingPackage if EnvPool is not
    installed.
    """
    if not is_installed("envpool"):
        raise missing_package(f"env {task_id!r}", "envpool", extra="envpool")
    from envpool.registration import registry

    if task_id not in registry.specs:
        hint = did_you_mean(task_id, registry.specs, 0.5, PREFIX) or "."
        raise UnknownEnvError(f"unknown env '{PREFIX}{task_id}': EnvPool has no such id{hint}")
    module: str = registry.specs[task_id][0]
    return module.removeprefix("envpool.")


def _threads_of_process(cfg: Any) -> int:
    """Returns the number of threads for a process with envs: its equal share of the usable cores."""
    processes = 1 if cfg.serial_mode else cfg.inline_samplers or cfg.num_workers
    of_machine = min(os.cpu_count() or 1, cpu_limit())
    return max(1, min(num_usable_cores(), int(of_machine // processes)))


def import_procgen() -> None:
    """Imports EnvPool's Procgen with the Qt libraries of the installed wheel, otherwise with the system's.

    Raises MissingPackage if there is no Qt, or if the wheel lacks a library of the system.
    """
    spec = importlib.util.find_spec("PyQt5")
    folders = [Path(place) / "Qt5" / "lib" for place in spec.submodule_search_locations or ()] if spec else []
    for folder in [folder for folder in folders if (folder / QT_LIBRARIES[0]).is_file()][:1]:
        try:
            for name in QT_LIBRARIES:
                ctypes.CDLL(str(folder / name))
        except OSError as error:
            raise MissingPackage(
                f"Qt 5, with which Procgen is drawn, does not load ({error}); on Debian and Ubuntu: "
                "apt-get install libgl1 libglib2.0-0"
            ) from error
    module = importlib.import_module(PROCGEN)
    if "ProcgenEnvSpec" not in vars(module):  # imported by EnvPool itself before Qt was there
        module = importlib.reload(module)
    if "ProcgenEnvSpec" not in vars(module):
        raise missing_package("EnvPool's Procgen", "PyQt5-Qt5", extra="procgen")

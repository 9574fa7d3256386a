"""EnvPool's envs by their id: `envpool_<id>`, e.g. envpool_Pong-v5. For other families: `make_envpool`.

EnvPool steps all copies of an env in C++ threads of the process that uses it.
"""

import difflib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sample_factory.config.flags import ConfigError, flag
from sample_factory.envs import packages
from sample_factory.envs.env_kwargs import env_kwargs_flag, parse_env_kwargs
from sample_factory.envs.env_registry import UnknownEnvError
from sample_factory.envs.headless import has_display
from sample_factory.envs.packages import missing_package
from sample_factory.envs.protocol import EnvConfig
from sample_factory.envs.qt_libraries import import_procgen
from sample_factory.envs.vector_copies import vector_env_copies_flag
from sample_factory.runtime.cpu import cpu_limit, num_usable_cores
from sample_factory.runtime.failures import one_line

if TYPE_CHECKING:
    from sample_factory.envs.envpool_vector_env import EnvPoolVectorEnv

PREFIX = "envpool_"
COPIES = 64  # as in version 2
SKIPS_FRAMES = ("atari", "vizdoom")  # suites


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
    )
    envpool_thread_affinity_offset: int = flag(
        -1,
        "pin the threads of EnvPool: those of the first worker to this core and the following ones, those "
        "of the next worker to the cores after them; -1: do not pin them",
        at_least=-1,
        at_most=10_000,
    )


@dataclass(frozen=True)
class EnvPoolIdFlags(EnvPoolFlags):
    """Flags of `envpool_<id>`."""

    env_kwargs: str = env_kwargs_flag("envpool.make")

    def __post_init__(self) -> None:
        parse_env_kwargs(self.env_kwargs)  # raises


def make_envpool_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> "EnvPoolVectorEnv":
    """Returns copies of the env with the id after `envpool_`, as one vector env.

    Raises UnknownEnvError with the nearest id, and ConfigError for --env_kwargs that the env does not accept.
    """
    task_id = full_env_name.removeprefix(PREFIX)
    options = parse_env_kwargs(cfg.env_kwargs)
    if cfg.env_frameskip and cfg.env_frameskip > 1:
        if suite_of(task_id) not in SKIPS_FRAMES:
            raise ConfigError(
                f"--env_frameskip={cfg.env_frameskip}: EnvPool skips frames in Atari games and Doom only"
            )
        options.setdefault("frame_skip", cfg.env_frameskip)
    return make_envpool(task_id, cfg, env_config, render_mode=render_mode, **options)


def is_installed() -> bool:
    """Returns whether EnvPool is installed, without importing it."""
    return packages.is_installed("envpool")


def check_installed(env_name: str) -> None:
    """Raises ImportError with the extra to install if EnvPool is missing."""
    if not is_installed():
        raise missing_package(f"env {env_name!r}", "envpool", extra="envpool")


def make_envpool(
    task_id: str,
    cfg: Any,
    env_config: EnvConfig,
    num_envs: int | None = None,
    render_mode: str | None = None,
    **options: Any,
) -> "EnvPoolVectorEnv":
    """Returns `num_envs` copies of EnvPool's env `task_id` as one vector env, also if it is a single copy.

    cfg: has the flags of EnvPoolFlags, and those that say how many processes step envs.
    num_envs: None: --vector_env_copies.
    options: further arguments of envpool.make_gymnasium, such as frame_skip=4.

    Raises UnknownEnvError with the nearest id, MissingPackage with the extra to install, and ConfigError for
    options that the env does not accept.
    """
    suite = suite_of(task_id)
    if render_mode is not None and suite.startswith("mujoco.") and not has_display():
        # EnvPool would end the process.
        raise ConfigError(f"EnvPool cannot draw {task_id} without a display; mujoco_ and gym_ envs can")
    from sample_factory.envs.envpool_vector_env import EnvPoolVectorEnv

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

    Raises UnknownEnvError with the nearest id, and MissingPackage with the extra to install.
    """
    check_installed(task_id)
    from envpool.registration import registry

    if task_id not in registry.specs:
        close = difflib.get_close_matches(task_id, registry.specs, n=1, cutoff=0.5)
        hint = f"; did you mean {PREFIX}{close[0]}?" if close else ""
        raise UnknownEnvError(f"unknown env '{PREFIX}{task_id}': EnvPool has no such id{hint}")
    module: str = registry.specs[task_id][0]
    return module.removeprefix("envpool.")


def _threads_of_process(cfg: Any) -> int:
    """Returns the cores that a process with envs may use, where all such processes get the same number."""
    processes = 1 if cfg.serial_mode else cfg.inline_samplers or cfg.num_workers
    of_machine = min(os.cpu_count() or 1, cpu_limit())
    return max(1, min(num_usable_cores(), int(of_machine // processes)))

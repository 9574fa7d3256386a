"""Flags that several families have: --env_kwargs, --vector_env_copies and --env_engine."""

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sample_factory.config.flags import ConfigError, flag, shortened
from sample_factory.envs.packages import is_installed
from sample_factory.runtime import gpu
from sample_factory.runtime.registry import did_you_mean

if TYPE_CHECKING:
    import gymnasium as gym

ENVPOOL = "envpool"
GYMNASIUM = "gymnasium"
NOT_ARGUMENTS = ("self", "render_mode", "num_envs")  # set by other means
COPIES = 1024  # of a batched simulator
# Parameters of a user's make_env -> the flag that gives them their values.
FLAG_OF_PARAMETER = {"num_envs": "vector_env_copies", "device": "env_device"}
EXAMPLE = """'{"is_slippery": false}'"""


@dataclass(frozen=True)
class EnvKwargsFlags:
    """The flag for arguments of the env; its text is checked before anything starts."""

    env_kwargs: str = flag(
        "{}",
        "arguments of the function that makes the env (such as gymnasium.make, envpool.make or parallel_env) "
        f"as JSON, e.g. {EXAMPLE}",
    )

    def __post_init__(self) -> None:
        parse_env_kwargs(self.env_kwargs)  # raises


def parse_env_kwargs(text: str) -> dict[str, Any]:
    """Returns the arguments in the text of --env_kwargs by name. Raises ConfigError if the text is not a JSON
    object, or sets render_mode."""
    try:
        kwargs = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"--env_kwargs={shortened(text)} is not JSON ({error}); write it like --env_kwargs={EXAMPLE}: "
            "names in double quotes, all of it in single quotes"
        ) from None
    if not isinstance(kwargs, dict):
        raise ConfigError(
            f"--env_kwargs={shortened(text)} is a {type(kwargs).__name__}; it should give each argument a "
            f"name, like --env_kwargs={EXAMPLE}"
        )
    if kwargs.pop("render_mode", None) is not None:
        raise ConfigError(
            "--env_kwargs: leave out render_mode; training does not draw, and enjoy asks for what its flags "
            "need"
        )
    return kwargs


def check_env_kwargs(
    env_name: str, kwargs: Mapping[str, Any], function: Callable[..., Any], others: Collection[str] = ()
) -> None:
    """Raises ConfigError if the function that makes an env has no parameter for one of the arguments in
    --env_kwargs, or needs an argument that is missing. others: further arguments that are always passed."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions of C extensions have no signature
        return
    for parameter in parameters:
        is_needed = parameter.default is parameter.empty and "VAR_" not in parameter.kind.name
        if is_needed and parameter.name not in {*kwargs, *others, *NOT_ARGUMENTS}:
            given = f"""--env_kwargs='{{"{parameter.name}": ...}}'"""
            raise ConfigError(f"env {env_name!r} needs the argument {parameter.name!r}: {given}")
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    names = [parameter.name for parameter in parameters if parameter.name not in NOT_ARGUMENTS]
    names += [name for name in others if name not in names]
    for name in kwargs:
        if name not in names:
            hint = did_you_mean(name, names) or ";"
            known = f"it has {', '.join(names)}" if names else "it has none"
            raise ConfigError(f"--env_kwargs: env {env_name!r} has no argument {name!r}{hint} {known}")


def vector_env_copies_flag(default: int | None, advice: str = "") -> Any:
    """Returns the field --vector_env_copies (in version 2: --env_agents) for a family's flags. advice: the
    end of the help, e.g. when many copies are faster."""
    text = "make each env a batch of this many copies, each with an agent of its own, stepped in one call"
    return flag(
        default,
        f"{text}; {advice}" if advice else text,
        aliases=("env_agents",),
        at_least=1,
        at_most=100_000,
    )


def flags_of_parameters(make_env: Callable[..., Any]) -> type | None:
    """Returns a section with --vector_env_copies, and with --env_device if a user's make_env also has the
    parameter `device`; None if make_env has no parameter `num_envs`."""
    try:
        parameters = inspect.signature(make_env).parameters
    except (TypeError, ValueError):  # some functions of C extensions have no signature
        return None
    if "num_envs" not in parameters:
        return None
    default = parameters["num_envs"].default
    copies = default if default is None or isinstance(default, int) else COPIES
    return _flags_of(copies, "device" in parameters)


@functools.cache  # so that the same flags are the same class
def _flags_of(copies: int | None, has_device: bool) -> type:
    """Returns a section with the flag --vector_env_copies. copies: default number of copies; None: as many as
    make_env chooses. has_device: adds the flag --env_device."""
    advice = "as many as make_env chooses if left out" if copies is None else ""
    copies_flag = vector_env_copies_flag(copies, advice)
    fields: list[Any] = [(FLAG_OF_PARAMETER["num_envs"], int if copies else int | None, copies_flag)]
    if has_device:
        text = "device of the env; auto: that of the network"
        choices = flag("auto", text, choices=("auto", "gpu", "cpu"))
        fields.append((FLAG_OF_PARAMETER["device"], str, choices))
    return dataclasses.make_dataclass("SimulatorFlags", fields, frozen=True)


def device_of_env(cfg: Any, worker_index: int) -> str:
    """Returns the env's device by --env_device as torch names it, e.g. "cuda:0"; workers take the GPUs in
    turn. Raises ConfigError if a GPU is asked for and there is none."""
    device = cfg.env_device
    if device == "auto" and cfg.device == "cpu":
        device = "cpu"  # with --device=gpu it stays auto: the network of a node without a GPU is on its CPU
    if not gpu.may_have_gpu(device):
        return "cpu"
    try:
        return gpu.resolve_device(device, worker_index)
    except RuntimeError as error:
        raise ConfigError(f"the env's device: {error}") from None


def copies_in_turn(make: "Callable[[], gym.Env[Any, Any]]", num_copies: int) -> "gym.vector.SyncVectorEnv":
    """Returns a SyncVectorEnv that steps its copies one after another, and resets a copy in the step that
    ends its episode."""
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    copies = SyncVectorEnv([make] * num_copies, autoreset_mode=AutoresetMode.SAME_STEP)
    copies.spec = copies.envs[0].spec  # has the limit of episodes
    return copies


def env_engine_flag(package: str) -> Any:
    """Returns the field --env_engine for a family's flags. package: the package whose envs the engine
    "gymnasium" makes."""
    return flag(
        ENVPOOL,
        f"the package that simulates: envpool, which steps many copies in threads of a worker process, or "
        f"gymnasium, the envs of {package}",
        choices=(ENVPOOL, GYMNASIUM),
    )


def default_engine() -> str:
    """Returns envpool if it is installed, else gymnasium."""
    return ENVPOOL if is_installed("envpool") else GYMNASIUM


def refuse_frameskip(cfg: Any, why: str) -> None:
    """Raises ConfigError if --env_frameskip is above 1. why: rest of the message: the reason, and what to do
    instead."""
    if cfg.env_frameskip and cfg.env_frameskip > 1:
        raise ConfigError(f"--env_frameskip={cfg.env_frameskip}: {why}")

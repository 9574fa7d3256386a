"""Arguments of the function that makes an env, by flag: --env_kwargs='{"is_slippery": false}'."""

import difflib
import inspect
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sample_factory.config.flags import ConfigError, flag, shortened

NOT_ARGUMENTS = ("self", "render_mode", "num_envs")  # set by other means
EXAMPLE = """'{"is_slippery": false}'"""


def env_kwargs_flag(function: str) -> Any:
    """Returns the field of a family's flags. function: what receives the arguments, for the help."""
    return flag("{}", f"arguments of {function} as JSON, e.g. {EXAMPLE}")


def parse_env_kwargs(text: str) -> dict[str, Any]:
    """Returns the arguments by name. Raises ConfigError if the text is not a JSON object."""
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
    if "render_mode" in kwargs:
        raise ConfigError(
            "--env_kwargs: leave out render_mode; training does not draw, and enjoy asks for what its flags "
            "need"
        )
    return kwargs


def check_env_kwargs(
    env_name: str, kwargs: Mapping[str, Any], function: Callable[..., Any], others: Collection[str] = ()
) -> None:
    """Raises ConfigError if a function would refuse arguments. others: further names that are accepted."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions of C extensions have no signature
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    names = [parameter.name for parameter in parameters if parameter.name not in NOT_ARGUMENTS]
    names += others
    for name in kwargs:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            known = f"it has {', '.join(names)}" if names else "it has none"
            raise ConfigError(f"--env_kwargs: env {env_name!r} has no argument {name!r}; {hint}{known}")

"""A family of envs: how to make one of them, its flags, its defaults, its metrics."""

import copy
import dataclasses
import functools
import inspect
import keyword
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol

from sample_factory.envs.family_flags import FLAG_OF_PARAMETER, device_of_env
from sample_factory.envs.gym_registrations import GymRegistrations
from sample_factory.envs.headless import prepare_sdl
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.envs.v1_registration import joined
from sample_factory.runtime.failures import ConfigError

MakeEnv = Callable[..., Any]
Levels = Mapping[str, Mapping[str, Any]]  # by name, the values of each level
Defaults = Mapping[str, Any] | Callable[[str], Mapping[str, Any]]


class FamilyMetrics(Protocol):
    """In the main process: computes metrics of a family from the episodes of one policy.

    A family registers a class with these methods; it is constructed with the name of the env, once for each
    policy. If a method raises, the error is logged in one line, the metrics are not computed any more, and
    training continues.
    """

    def __init__(self, env_name: str): ...

    def add(self, extra_stats: Mapping[str, float]) -> Mapping[str, float]:
        """Adds an episode, and returns the new values by metric; empty if none changes.

        extra_stats: the `episode_extra_stats` of the episode.

        The values are written to TensorBoard, and can be the target of population-based training. A metric
        that is left out keeps its value.
        """

    def clear(self) -> None:
        """Discards the episodes that were added so far. Called when the policy has taken over the
        weights of another policy."""


class UnknownEnvError(ConfigError):
    """Raised if the env's name begins with no registered prefix, or the family has no env of that name."""


class FamilyParts(NamedTuple):
    """The parts of a family, as `register_env` describes them. Each of make_env, flags, defaults, names and
    metrics may be a "module:attribute" string.

    follows_observation: whether flags for which the family has no default get one that suits the observation,
        see config/observation_defaults.py; or a function of the env's name that returns this.
    """

    make_env: MakeEnv | str
    flags: type | str | None = None
    defaults: Defaults | str | None = None
    names: Collection[str] | str | None = None
    metrics: type[FamilyMetrics] | str | None = None
    example: str | None = None
    follows_observation: bool | Callable[[str], bool] = False
    levels: Levels | str = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class EnvFamily:
    """The resolved family of one env: how to make it, its flags, its defaults. Sent to child processes.

    metrics: class that computes further metrics from episodes.
    follows_observation: whether flags that nothing else sets get defaults that suit the observation.
    registrations: sends what the main process has registered with Gymnasium to the children.
    action_repeat: how often an env steps with each action; above 1 with --eval_env_frameskip only.
    render_mode: Gymnasium's render mode of envs for which `make` is given none.
    wrap: called with each adapted env and its EnvConfig; returns the env to step instead.
    levels: the levels that the family names: name -> values of flags.
    prefix: what the names of the family's envs begin with; empty for a single env.
    """

    env_name: str
    make_env: MakeEnv
    flags: type | None
    defaults: Mapping[str, Any]
    metrics: type[FamilyMetrics] | None = None
    follows_observation: bool = False
    registrations: GymRegistrations = dataclasses.field(default_factory=GymRegistrations)
    action_repeat: int = 1
    render_mode: str | None = None
    wrap: Callable[[MultiAgentEnv, EnvConfig], MultiAgentEnv] | None = None
    levels: Levels = dataclasses.field(default_factory=dict)
    prefix: str = ""

    def extended(self, flags: type | None, defaults: Mapping[str, Any]) -> "EnvFamily":
        """Returns the family with the flags and defaults of a script added; they replace the family's flags
        and defaults of the same names. flags: a dataclass of fields from `flag` or `script_flag`; None: no
        further flags."""
        all_defaults = {**self.defaults, **defaults}
        return dataclasses.replace(self, flags=joined(flags, self.flags), defaults=all_defaults)

    def without_flags(self, values: Mapping[str, Any], others: Collection[str]) -> dict[str, Any]:
        """Returns the entries of `values` that a script has set without declaring a flag: their names are
        neither flags of the family nor in `others`, the names of all other flags. Names that cannot be
        attributes are left out."""
        own = set() if self.flags is None else {field.name for field in dataclasses.fields(self.flags)}
        names = [name for name in values if name.isidentifier() and not keyword.iskeyword(name)]
        return {name: values[name] for name in names if name not in own and name not in others}

    def make(self, cfg: Any, env_config: EnvConfig, render_mode: str | None = None) -> Any:
        """Makes the env as its author wrote it; `adapters.adapt` turns it into a MultiAgentEnv.

        Passes the arguments that the signature of make_env names: `cfg`, `env_config`, `render_mode`,
        `num_envs` (--vector_env_copies) and `device` (--env_device, as torch names it). The first parameter
        gets the name of the env, see `takes_name`. A make_env with **kwargs also gets `render_mode`; a
        function with **kwargs and a parameter for the name, `cfg` or `env_config` gets `cfg` and `env_config`
        as well. Others do not, since they may pass **kwargs on to an env.

        While --num_envs_per_worker is not chosen yet, as when an env is tried out before a run, cfg has
        the smallest number that can be chosen, since make_env may compute with it.
        """
        prepare_sdl()
        if getattr(cfg, "num_envs_per_worker", 1) is None:
            cfg = copy.copy(cfg)
            cfg.num_envs_per_worker = cfg.worker_num_splits
        given = {"cfg": cfg, "env_config": env_config, "render_mode": render_mode}
        parameters = list(inspect.signature(self.make_env).parameters.values())
        accepted = {parameter.name for parameter in parameters}
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            is_asking = self.takes_name() or accepted & {"cfg", "env_config"}
            if is_asking and not self._makes_by_class():
                accepted |= set(given)
            elif render_mode is not None:
                accepted.add("render_mode")
        kwargs = {name: value for name, value in given.items() if name in accepted}
        if self.takes("num_envs") and cfg.vector_env_copies is not None:
            kwargs["num_envs"] = cfg.vector_env_copies
        if self.takes("device"):
            kwargs["device"] = device_of_env(cfg, env_config.worker_index)
        return self.make_env(*([self.env_name] if self.takes_name() else []), **kwargs)

    def takes(self, parameter: str) -> bool:
        """Returns whether make_env has the parameter "num_envs" or "device", and the family has the flag that
        sets this parameter."""
        flag = FLAG_OF_PARAMETER[parameter]
        own = () if self.flags is None else dataclasses.fields(self.flags)
        is_parameter = parameter in inspect.signature(self.make_env).parameters
        return is_parameter and any(field.name == flag for field in own)

    def _makes_by_class(self) -> bool:
        make_env = self.make_env
        while isinstance(make_env, functools.partial):
            make_env = make_env.func
        return inspect.isclass(make_env)

    def takes_name(self) -> bool:
        """Returns whether the first parameter of make_env gets the name of the env: if it has no default and
        is not one of the parameters that are passed by name."""
        parameters = list(inspect.signature(self.make_env).parameters.values())
        if not parameters or parameters[0].name in ("cfg", "env_config", "render_mode", *FLAG_OF_PARAMETER):
            return False
        first = parameters[0]
        if first.kind is first.VAR_POSITIONAL:
            return not self._makes_by_class()
        return (
            first.kind is not first.KEYWORD_ONLY
            and first.kind is not first.VAR_KEYWORD
            and (first.default is first.empty or first.name == "full_env_name")
        )

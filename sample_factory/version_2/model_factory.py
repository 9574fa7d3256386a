"""Version 2's registry of networks. Imports no torch."""

from collections.abc import Callable, Mapping
from typing import Any

from sample_factory.config.config import FlagNamespace
from sample_factory.config.flags import ConfigError
from sample_factory.models.network_registry import register_encoder

ENCODER = "registered_factory"  # the value of --encoder_custom for the one encoder of a script


class ModelFactory:
    """Registers the networks of a script. Only encoders have the same form here as in version 2."""

    def __init__(self) -> None:
        self.has_encoder = False

    def register_encoder_factory(self, make_encoder: Callable[[Any, Any], Any]) -> None:
        """make_encoder(cfg, observation_space): returns an `Encoder`; cfg has the flags of model and env."""

        def factory(flags: Any, observation_space: Any) -> Any:
            return make_encoder(FlagNamespace(**vars(flags)), observation_space)

        register_encoder(ENCODER, factory)
        self.has_encoder = True

    def register_model_core_factory(self, make_core: Any) -> None:
        raise _elsewhere("core", "factory(flags, in_size)")

    def register_decoder_factory(self, make_decoder: Any) -> None:
        raise _elsewhere("decoder", "factory(flags, in_size)")

    def register_actor_critic_factory(self, make_actor_critic: Any) -> None:
        raise _elsewhere("actor_critic", "factory(flags, observation_space, action_space)")


def _elsewhere(part: str, factory: str) -> ConfigError:
    return ConfigError(
        f"write sample_factory.register_{part}(name, factory) with {factory}, and --{part}_custom=name; the "
        f"interface differs from version 2, see the docstring of register_{part}"
    )


_FACTORY = ModelFactory()


def global_model_factory() -> ModelFactory:
    """Returns the registry."""
    return _FACTORY


def encoder_default() -> Mapping[str, str]:
    """Returns the default of --encoder_custom, if a script has registered an encoder: as in version 2, it is
    used by all envs."""
    return {"encoder_custom": ENCODER} if _FACTORY.has_encoder else {}

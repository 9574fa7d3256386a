"""Procgen by the names of its games, through EnvPool: `procgen_<game>`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sample_factory.config.flags import ConfigError, Not, flag
from sample_factory.envs import family_flags
from sample_factory.envs.env_family import FamilyParts
from sample_factory.envs.protocol import EnvConfig
from sample_factory.families.envpool_engine import EnvPoolFlags, make_envpool, options_of_user

PREFIX = "procgen_"
GAMES = (
    "bigfish bossfight caveflyer chaser climber coinrun dodgeball fruitbot heist jumper leaper maze miner "
    "ninja plunder starpilot"
)
PROCGEN_ENVS = tuple(PREFIX + game for game in GAMES.split())
MODES = ("easy", "hard", "extreme", "memory", "exploration")
FLAG_OF_OPTION = {
    "distribution_mode": "procgen_distribution_mode",
    "num_levels": "procgen_num_levels",
    "start_level": "procgen_start_level",
}


@dataclass(frozen=True)
class ProcgenFlags(EnvPoolFlags, family_flags.EnvKwargsFlags):
    """Flags of Procgen, named as in OpenAI's package."""

    vector_env_copies: int = family_flags.vector_env_copies_flag(32)
    procgen_distribution_mode: str = flag(
        "easy", "variant of the levels; a game has easy and hard, and some of the others", choices=MODES
    )
    procgen_num_levels: int = flag(0, "number of different levels; 0: no limit", at_least=0)
    procgen_start_level: int = flag(
        0,
        "the first level, where --procgen_num_levels limits them",
        at_least=0,
        only_with={"procgen_num_levels": Not((0,))},
    )


def make_procgen_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> Any:
    """Makes --vector_env_copies copies of the game whose name follows `procgen_`, as one vector env."""
    family_flags.refuse_frameskip(cfg, "Procgen skips no frames; leave it out")
    game = full_env_name.removeprefix(PREFIX)
    return make_envpool(
        find_task_id(game, cfg.procgen_distribution_mode),
        cfg,
        env_config,
        render_mode=render_mode,
        num_levels=cfg.procgen_num_levels,
        start_level=cfg.procgen_start_level,
        **options_of_user(cfg, FLAG_OF_OPTION),
    )


def find_task_id(game: str, mode: str) -> str:
    """Returns EnvPool's id of a game in a mode. Raises ConfigError if the game does not have that mode."""
    import envpool

    ids = {name: f"{game.capitalize()}{name.capitalize()}-v0" for name in MODES}
    known = set(envpool.list_all_envs())
    if ids[mode] not in known:
        modes = ", ".join(name for name in MODES if ids[name] in known)
        raise ConfigError(f"--procgen_distribution_mode={mode}: {game} has {modes}")
    return ids[mode]


def procgen_defaults(env_name: str) -> Mapping[str, Any]:
    """Returns flag defaults that follow the published PPO agent (Cobbe et al. 2020, appendix D), for 64
    copies in all processes together."""
    return {
        "num_workers": 1,
        "num_envs_per_worker": 2,
        "encoder_type": "resnet",
        "encoder_subtype": "resnet_impala",
        "nonlinearity": "relu",
        "hidden_size": 256,
        "use_rnn": False,
        "normalize_input": False,
        "obs_scale": 255.0,
        "async_rl": False,
        "with_vtrace": False,
        "gamma": 0.999,
        "gae_lambda": 0.95,
        "learning_rate": 5e-4,
        "ppo_clip_ratio": 0.2,
        "ppo_clip_value": 0.2,
        "exploration_loss_coeff": 0.01,
        "max_grad_norm": 0.5,
        "rollout": 256,
        "batch_size": 2048,
        "num_batches_per_iteration": 8,
        "ppo_epochs": 3,
    }


FAMILY = FamilyParts(make_procgen_env, ProcgenFlags, procgen_defaults, PROCGEN_ENVS)

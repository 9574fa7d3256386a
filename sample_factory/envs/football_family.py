"""Google Research Football by the names of its scenarios, through EnvPool: `football_<scenario>`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sample_factory.config.flags import ConfigError, flag
from sample_factory.envs.env_kwargs import env_kwargs_flag, parse_env_kwargs
from sample_factory.envs.envpool_family import EnvPoolFlags, check_installed, make_envpool
from sample_factory.envs.protocol import EnvConfig
from sample_factory.envs.vector_copies import vector_env_copies_flag
from sample_factory.envs.wrappers.football import FootballMatches

PREFIX = "football_"
SCENARIOS = (
    "11_vs_11_competition",
    "11_vs_11_easy_stochastic",
    "11_vs_11_hard_stochastic",
    "11_vs_11_kaggle",
    "11_vs_11_stochastic",
    "1_vs_1_easy",
    "5_vs_5",
    "academy_3_vs_1_with_keeper",
    "academy_corner",
    "academy_counterattack_easy",
    "academy_counterattack_hard",
    "academy_empty_goal",
    "academy_empty_goal_close",
    "academy_pass_and_shoot_with_keeper",
    "academy_run_pass_and_shoot_with_keeper",
    "academy_run_to_score",
    "academy_run_to_score_with_keeper",
    "academy_single_goal_versus_lazy",
)
FOOTBALL_ENVS = tuple(PREFIX + scenario for scenario in SCENARIOS)
GOALS = "scoring"
GOALS_AND_CHECKPOINTS = "scoring,checkpoints"


@dataclass(frozen=True)
class FootballFlags(EnvPoolFlags):
    """Flags of football."""

    vector_env_copies: int = vector_env_copies_flag(16)
    football_rewards: str = flag(
        GOALS_AND_CHECKPOINTS,
        "scoring: 1 for a goal, -1 for one of the other team; scoring,checkpoints: also 0.1 for each of ten "
        "distances from the goal that the ball is carried to for the first time in a match; the true "
        "objective is the difference of goals in both cases",
        choices=(GOALS, GOALS_AND_CHECKPOINTS),
    )
    env_kwargs: str = env_kwargs_flag("envpool.make")

    def __post_init__(self) -> None:
        parse_env_kwargs(self.env_kwargs)  # raises


def make_football_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> FootballMatches:
    """Returns --vector_env_copies matches of the scenario after `football_`, as one vector env."""
    if cfg.env_frameskip and cfg.env_frameskip > 1:
        raise ConfigError(
            f"--env_frameskip={cfg.env_frameskip} is not for football, where an action lasts 10 steps of the "
            """simulator; use --env_kwargs='{"physics_steps_per_frame": 20}'"""
        )
    task_id = f"gfootball/{full_env_name.removeprefix(PREFIX)}-v1"
    # EnvPool cannot draw football; FootballMatches draws the mini map.
    pool = make_envpool(task_id, cfg, env_config, **parse_env_kwargs(cfg.env_kwargs))
    return FootballMatches(pool, cfg.football_rewards == GOALS_AND_CHECKPOINTS, render_mode)


def football_defaults(env_name: str) -> Mapping[str, Any]:
    """Returns flags that follow the published PPO baseline (Kurach et al. 2020, `repro_checkpoint_easy.sh`).

    Where the baseline stacks four mini maps, a recurrent core remembers the directions of players and ball.
    A pixel of the mini map is 255 or 0, and most are 0 most of the time: their statistics say nothing.

    Raises ImportError without EnvPool.
    """
    check_installed(env_name)
    return {
        "num_workers": 1,
        "num_envs_per_worker": 2,
        "normalize_input": False,
        "obs_scale": 255.0,
        "async_rl": False,
        "with_vtrace": False,
        "gamma": 0.993,
        "gae_lambda": 0.95,
        "learning_rate": 3.43e-4,
        "ppo_clip_ratio": 0.08,
        "exploration_loss_coeff": 0.003,
        "max_grad_norm": 0.64,
        "rollout": 128,
        "batch_size": 512,
        "num_batches_per_iteration": 8,
        "ppo_epochs": 2,
    }

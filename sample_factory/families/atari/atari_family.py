"""The `atari_` family: Atari 2600 games by the names of versions 1 and 2, e.g. atari_pong."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from sample_factory.config.flags import flag
from sample_factory.envs.env_family import FamilyParts
from sample_factory.envs.family_flags import ENVPOOL, copies_in_turn, default_engine, env_engine_flag
from sample_factory.envs.packages import is_installed, missing_package
from sample_factory.envs.protocol import EnvConfig
from sample_factory.families.envpool_engine import EnvPoolFlags, make_envpool

PREFIX = "atari_"
# The 57 games that are usually compared, by the names of their ROMs.
_COMPARED = """
    alien amidar assault asterix asteroids atlantis bank_heist battle_zone beam_rider berzerk bowling
    boxing breakout centipede chopper_command crazy_climber defender demon_attack double_dunk enduro
    fishing_derby freeway frostbite gopher gravitar hero ice_hockey jamesbond kangaroo krull
    kung_fu_master montezuma_revenge ms_pacman name_this_game phoenix pitfall pong private_eye qbert
    riverraid road_runner robotank seaquest skiing solaris space_invaders star_gunner surround tennis
    time_pilot tutankham up_n_down venture video_pinball wizard_of_wor yars_revenge zaxxon
"""
_OTHERS = """
    adventure air_raid atlantis2 backgammon basic_math blackjack carnival casino crossbow darkchambers
    donkey_kong earthworld elevator_action entombed et flag_capture frogger galaxian hangman
    haunted_house human_cannonball journey_escape kaboom keystone_kapers king_kong klax koolaid
    laser_gates lost_luggage mario_bros miniature_golf mr_do othello pacman pitfall2 pooyan sir_lancelot
    space_war superman tetris tic_tac_toe_3d trondead turmoil video_checkers video_chess video_cube
    word_zapper
"""
COMPARED = tuple(_COMPARED.split())
# Spellings of versions 1 and 2 that are not the game's name without underscores.
OLD_SPELLINGS = {
    "asteroid": "asteroids",
    "kongfumaster": "kung_fu_master",
    "montezuma": "montezuma_revenge",
    "privateye": "private_eye",
}
# The name of the ROM, e.g. ms_pacman, by the full name of the env, e.g. atari_mspacman.
GAME_OF_ENV: Mapping[str, str] = {
    **{f"{PREFIX}{game.replace('_', '')}": game for game in (*COMPARED, *_OTHERS.split())},
    **{f"{PREFIX}{spelling}": game for spelling, game in OLD_SPELLINGS.items()},
}

MAX_FRAMES = 108_000  # half an hour of the game
FRAMES_PER_SECOND = 60
COPIES = 16


@dataclass(frozen=True)
class AtariFlags(EnvPoolFlags):
    """Flags of Atari games."""

    env_engine: str = env_engine_flag("ale-py, one after another")
    atari_repeat_action_probability: float = flag(
        0.0,
        "probability of each frame to repeat the last action in place of the new one (sticky actions); 0.25 "
        "is the protocol of Machado et al. (2018)",
        at_least=0,
        at_most=1,
    )
    atari_episodic_life: bool = flag(
        True,
        "a lost life is the end of an episode for the learner; rewards and scores are reported for whole "
        "games in any case",
    )
    atari_noop_max: int = flag(
        30,
        "games and lives begin with a random number of frames without an action, at most this many",
        at_least=1,
        at_most=1000,
    )
    atari_full_action_space: bool = flag(
        False, "all 18 actions of the joystick, instead of those that have an effect in the game"
    )


def make_atari_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any]:
    """Makes a vector env of --vector_env_copies games, or of one game with a render_mode; for one game in
    ALE, a single env. Observations are grey images of 84x84 pixels. Raises MissingPackage for an engine that
    is not installed."""
    game = GAME_OF_ENV[full_env_name]
    frameskip = cfg.env_frameskip or 1
    copies = cfg.vector_env_copies if render_mode is None else 1
    if cfg.env_engine == ENVPOOL:
        if not is_installed("envpool"):
            alternative = "use --env_engine=gymnasium"
            raise missing_package(f"--env_engine={ENVPOOL}", "envpool", "envpool", alternative)
        return make_envpool(
            "".join(part.capitalize() for part in game.split("_")) + "-v5",
            cfg,
            env_config,
            num_envs=copies,
            render_mode=render_mode,
            stack_num=1,
            frame_skip=frameskip,
            max_episode_steps=MAX_FRAMES // frameskip,
            noop_max=cfg.atari_noop_max,
            use_fire_reset=True,
            episodic_life=cfg.atari_episodic_life,
            repeat_action_probability=cfg.atari_repeat_action_probability,
            full_action_space=cfg.atari_full_action_space,
        )
    try:
        from sample_factory.families.atari.ale_env import make_ale_env
    except ImportError as error:
        raise missing_package(f"--env_engine={cfg.env_engine}", "ale-py", extra="atari") from error
    if copies == 1:
        return make_ale_env(game, cfg, MAX_FRAMES, None if render_mode is None else "rgb_array")
    return copies_in_turn(lambda: make_ale_env(game, cfg, MAX_FRAMES), copies)


def atari_defaults(full_env_name: str) -> Mapping[str, Any]:
    """Returns flag defaults that follow the published PPO runs, with few envs and processes for a small
    machine."""
    engine = default_engine()
    # EnvPool's threads use all cores from one process.
    workers = {"num_workers": 1} if engine == ENVPOOL else {}
    return {
        **workers,
        "env_engine": engine,
        "vector_env_copies": COPIES,
        "num_envs_per_worker": 2,
        "worker_num_splits": 2,
        "decorrelate_envs_on_one_worker": False,  # games begin with no-ops, and differ in length
        "env_frameskip": 4,
        "env_framestack": 4,
        "fps": FRAMES_PER_SECOND,
        "obs_scale": 255.0,
        "reward_clip": 1.0,
        "encoder_subtype": "convnet_atari",
        "nonlinearity": "relu",
        "use_rnn": False,
        "rollout": 64,
        "batch_size": 256,
        "num_batches_per_iteration": 8,
        "ppo_epochs": 4,
        "with_vtrace": False,
        "gae_lambda": 0.95,
        "ppo_clip_ratio": 0.1,
        "value_loss_coeff": 0.5,
        "exploration_loss": "entropy",
        "exploration_loss_coeff": 0.01,
        "max_grad_norm": 0.5,
        "learning_rate": 2.5e-4,
        "adam_eps": 1e-5,
        "normalize_input": False,
    }


FAMILY = FamilyParts(make_atari_env, AtariFlags, atari_defaults, GAME_OF_ENV)

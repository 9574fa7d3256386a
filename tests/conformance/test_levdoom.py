"""LevDoom: its envs by a script, and its .cfg and .wad files as a DoomSpec, beside `levdoom.make`.

Its envs ignore the seed of a reset, so the plain env gets the seeds of the episodes through its engine.
"""

import functools
from pathlib import Path

import cv2
import gymnasium as gym
import levdoom
import numpy as np
import pytest
from gymnasium.utils import seeding
from vizdoom import GameVariable

from sample_factory.envs.env_registry import register_env
from sample_factory.families.doom.action_spaces import Press, button_decoder
from sample_factory.families.doom.doom_family import FAMILY, DoomSpec
from sample_factory.families.doom.make_doom_env import make_doom_env
from tests.conformance.ledger import Plain, assert_equal
from tests.conformance.product import adapted_by_name, train_on

FRAMESKIP = 4
DOOM = {"render": False, "resolution": "160X120"}
WRAP = {"normalize_observation": False, "rescale_observation": False}


def end_of(env, terminated: bool, truncated: bool) -> tuple[bool, bool]:
    """Returns (terminated, truncated) of the plain env, which sets both at every end: a player who is alive
    was cut by the limit."""
    assert terminated == truncated
    is_dead = env.unwrapped.game.is_player_dead()
    return terminated and is_dead, terminated and not is_dead


@pytest.mark.parametrize(
    ("scenario", "hard_rewards", "num_steps"),
    [
        ("DefendTheCenter", False, 6_000),
        ("DefendTheCenter", True, 3_000),
        ("HealthGathering", False, 3_000),
        ("SeekAndSlay", False, 1_300),
        ("DodgeProjectiles", False, 3_000),
        ("DodgeProjectiles", True, 1_000),
    ],
)
def test_its_envs_by_a_script(scenario, hard_rewards, num_steps, count):
    def make_env(full_env_name):
        wrap = {**WRAP, "hard_rewards": hard_rewards}
        return levdoom.make(full_env_name.removeprefix("levdoom_"), doom=DOOM, wrap=wrap)

    register_env("levdoom_", make_env)
    name = f"levdoom_{scenario}Level0-v0"
    trained = train_on(adapted_by_name(name), num_steps, act=None)
    env, plain = make_env(name), Plain()
    observation, _ = env.reset(seed=1)
    for action in trained.actions[:, 0, 0]:
        plain.see(obs=observation[None].astype(np.float32))
        observation, reward, *ends, _ = env.step(int(action))
        plain.add(reward, *end_of(env, *ends))
        if any(ends):
            observation, _ = env.reset()
    plain.see(obs=observation[None].astype(np.float32))
    env.close()
    count("levdoom", assert_equal(trained, plain))


# What a DoomSpec says beside the files. The scripts in the .wad files pay for kills, first-aid and poison,
# which LevDoom leaves out; those of DodgeProjectiles pay nothing.
HIT = -0.1
SPECS = {
    "DefendTheCenter": {"actions": (Press(3), Press(2))},
    "HealthGathering": {"actions": (Press(3), Press(2))},
    "SeekAndSlay": {"actions": (Press(3), Press(2), Press(2))},
    "DodgeProjectiles": {
        "actions": (Press(3), Press(2)),
        "shaping": {"delta": {"HITS_TAKEN": {"gain": HIT, "loss": 0.0}}},
    },
}


class Paid:
    """The engine's rewards of a plain env, and those for hits."""

    def __init__(self, env, spec: DoomSpec):
        self._game = env.unwrapped.game
        self._per_hit = HIT if spec.shaping else 0.0

    def begin(self) -> None:
        self._total, self._hits = self._game.get_total_reward(), None

    def step(self, is_end: bool) -> float:
        total, hits = self._game.get_total_reward(), self._game.get_game_variable(GameVariable.HITS_TAKEN)
        reward = total - self._total
        if self._hits is not None and not is_end:
            reward += self._per_hit * (hits - self._hits)
        self._total, self._hits = total, hits
        return reward


@pytest.mark.parametrize(
    ("scenario", "level", "num_steps"),
    [
        ("DefendTheCenter", "default", 4_000),
        ("DefendTheCenter", "complete", 4_000),
        ("HealthGathering", "lava_supreme_short_agent", 2_000),
        ("SeekAndSlay", "complete", 1_000),
        ("DodgeProjectiles", "barons_flaming_skulls", 2_000),
    ],
)
def test_its_files_as_a_spec(scenario, level, num_steps, count):
    ids = levdoom.env_mapping[next(own for own in levdoom.Scenario if own.value.__name__ == scenario)]
    seeds = iter(seeding.np_random(1)[0].integers(2**32, size=num_steps).tolist())
    seed = next(seeds)
    # The pictures of "complete" also follow from the seed with which the engine starts.
    env = gym.make(next(env_id for env_id, name in ids.items() if name == level), seed=seed, **DOOM)
    folder = Path(levdoom.__file__).parent / "envs" / env.unwrapped.scenario
    spec = DoomSpec("lev", str(folder / "conf.cfg"), wad=str(folder / f"maps/{level}.wad"), **SPECS[scenario])
    make_env = functools.partial(make_doom_env, spec=spec)
    register_env("lev", make_env, flags=FAMILY.flags, defaults=FAMILY.defaults)
    trained = train_on(adapted_by_name("lev"), num_steps, frameskip=FRAMESKIP)
    plain, paid = Plain(), Paid(env, spec)
    buttons_of = button_decoder(spec.actions)

    def begin(seed: int) -> None:
        env.unwrapped.game.set_seed(seed)
        see(env.reset()[0])
        paid.begin()

    def see(picture) -> None:
        small = cv2.resize(picture, (128, 72), interpolation=cv2.INTER_NEAREST)
        plain.see(obs=small.transpose(2, 0, 1)[None])

    begin(seed)
    for row in trained.actions[:, 0]:
        action = env.unwrapped.available_actions.index(buttons_of(row))
        before = env.unwrapped.game.get_episode_time()
        picture, _, *ends, _ = env.step(action)
        tics = env.unwrapped.game.get_episode_time() - before
        frames = tics if 0 < tics < FRAMESKIP else FRAMESKIP  # the time is 0 after an end by the map
        plain.add(paid.step(any(ends)), *end_of(env, *ends), frames=frames)
        if any(ends):
            begin(next(seeds))
        else:
            see(picture)
    env.close()
    count("levdoom", assert_equal(trained, plain))

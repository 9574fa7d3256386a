"""Compares PettingZoo's envs, played through the product, with the loops that its documentation shows."""

import importlib
import json
import os

import numpy as np
import pytest
from gymnasium.spaces import Box

from tests.conformance.ledger import Plain, PlainEpisode, assert_equal
from tests.conformance.product import ROLLOUT, adapted_by_name, train_on

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame


def play_parallel(env, actions):
    """Plays actions, [T, A], in a parallel env, which is reset when no agent is left."""
    names = env.possible_agents
    boxes = {name: env.observation_space(name) for name in names}
    plain = Plain()

    def see(observations):
        if all(isinstance(box, Box) for box in boxes.values()):
            zeros = {name: np.zeros(box.shape, box.dtype) for name, box in boxes.items()}
            rows = [observations[name] if name in env.agents else zeros[name] for name in names]
            stacked = np.stack(rows)
            plain.see(obs=stacked.astype(np.float32) if stacked.dtype == np.float64 else stacked)

    see(env.reset(seed=1)[0])
    for row in actions:
        acting = list(env.agents)
        chosen = {name: action for name, action in zip(names, row) if name in acting}
        observations, *results, _ = env.step(chosen)
        rewards, terminated, truncated = ([own.get(name, 0) for name in names] for own in results)
        is_cut = [cut and not ended for ended, cut in zip(terminated, truncated)]
        plain.add(rewards, np.array(terminated, bool), is_cut, [name in acting for name in names])
        if not env.agents:
            observations, _ = env.reset()
        see(observations)
    env.close()
    return plain


@pytest.mark.parametrize(
    ("module", "kwargs", "num_steps"),
    [
        ("classic.rps_v2", {"max_cycles": 15}, 1_000),
        ("butterfly.knights_archers_zombies_v11", {"max_cycles": 200, "spawn_delay": 2}, 1_500),
        ("butterfly.cooperative_pong_v6", {"max_cycles": 40}, 300),
        ("sisl.pursuit_v5", {"max_cycles": 40}, 400),
    ],
)
def test_parallel_envs(module, kwargs, num_steps, count):
    trained = train_on(adapted_by_name(f"pettingzoo_{module}", env_kwargs=json.dumps(kwargs)), num_steps)
    env = importlib.import_module(f"pettingzoo.{module}").parallel_env(**kwargs)
    count(
        "pettingzoo parallel", assert_equal(trained, play_parallel(env, trained.actions[:, :, 0].astype(int)))
    )


def play_in_turns(env, actions):
    """Plays actions, [T, A], by PettingZoo's loop, with a turn for each step until there are no more.

    An agent gets at `last` what it has earned since its turn. The learner knows as much of it as arrives in
    the rollout of the turn; where a rollout ends while an agent waits, its last turn has no end, and counts
    as much as its state is worth.
    """
    names = env.possible_agents
    plain = Plain()
    num_cut = 0
    env.reset(seed=1)
    while True:
        turns: dict[str, int] = {}  # the last ones
        totals, lengths = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0)
        for name in env.agent_iter():
            agent = names.index(name)
            _, reward, terminated, truncated, _ = env.last()
            totals[name] += reward
            if name in turns:
                turn = turns[name]
                arrives = len(plain.rewards) - 1
                if arrives // ROLLOUT == turn // ROLLOUT:
                    plain.rewards[turn][agent] = reward
                    plain.terminated[turn][agent] = terminated
                    plain.truncated[turn][agent] = truncated and not terminated
                else:
                    num_cut += reward != 0 or terminated
            if terminated or truncated:
                plain.ended.append(PlainEpisode(len(plain.rewards) - 1, agent, totals[name], lengths[name]))
                env.step(None)
                continue
            both = [env.observe(own) for own in names]
            plain.see(**{key: np.stack([observation[key] for observation in both]) for key in both[0]})
            if len(plain.rewards) == len(actions):
                return plain, num_cut
            turns[name] = len(plain.rewards)
            lengths[name] += 1
            acts = [other == name for other in names]
            plain.add([0.0] * len(names), False, False, acts)
            env.step(int(actions[turns[name], agent]))
        env.reset()


@pytest.mark.parametrize("game", ["tictactoe_v3", "connect_four_v3"])
def test_turn_based_games(game, count):
    trained = train_on(adapted_by_name(f"pettingzoo_classic.{game}"), 1_600)
    env = importlib.import_module(f"pettingzoo.classic.{game}").env()
    plain, num_cut = play_in_turns(env, trained.actions[:, :, 0].astype(int))
    tally = assert_equal(trained, plain)
    count("pettingzoo turn-based", tally._replace(differences=num_cut))

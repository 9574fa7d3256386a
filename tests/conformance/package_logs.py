"""Logs within other packages, below all code of the product: episodes as the packages report them."""

import functools
from typing import Any, NamedTuple

import envpool
import gymnasium as gym
import numpy as np
import vizdoom
from generals.core.game import Game
from pettingzoo.utils import BaseParallelWrapper, BaseWrapper

from sample_factory.families.generals.generals_env import LeanGame


class Played(NamedTuple):
    """An episode of an agent: the rewards of its steps, and how it ended."""

    rewards: tuple[float, ...]
    terminated: bool
    truncated: bool


class PackageLog:
    """The episodes of the agents of one env, in the order in which they end."""

    def __init__(self, num_agents: int):
        self.episodes: list[list[Played]] = [[] for _ in range(num_agents)]
        self._rewards: list[list[float]] = [[] for _ in range(num_agents)]

    def step(self, agent: int, reward: Any, terminated: Any = False, truncated: Any = False) -> None:
        self._rewards[agent].append(float(reward))
        if terminated or truncated:
            self.end(agent, terminated, truncated)

    def end(self, agent: int, terminated: Any, truncated: Any) -> None:
        self.episodes[agent].append(Played(tuple(self._rewards[agent]), bool(terminated), bool(truncated)))
        self._rewards[agent] = []


class LoggedEnv(gym.Wrapper):
    def __init__(self, env: gym.Env, log: PackageLog):
        super().__init__(env)
        self._log = log

    def step(self, action):
        returned = self.env.step(action)
        self._log.step(0, *returned[1:4])
        return returned


class LoggedPool:
    """An EnvPool. The step after an end only resets the copy."""

    def __init__(self, pool: Any, log: PackageLog):
        self._pool, self._log = pool, log
        self.reset, self.send, self.render, self.close = pool.reset, pool.send, pool.render, pool.close
        self._waits = np.zeros(len(log.episodes), bool)

    def recv(self):
        returned = self._pool.recv()
        columns = zip(*(column.tolist() for column in returned[1:4]))
        for copy, (values, waits) in enumerate(zip(columns, self._waits)):
            if not waits:
                self._log.step(copy, *values)
        self._waits = returned[2] | returned[3]
        return returned


class LoggedParallel(BaseParallelWrapper):
    def __init__(self, env: Any, log: PackageLog):
        super().__init__(env)
        self._log = log

    def step(self, actions):
        returned = self.env.step(actions)
        for name in actions:
            values = (column[name] for column in returned[1:4])
            self._log.step(self.possible_agents.index(name), *values)
        return returned


class LoggedTurns(BaseWrapper):
    """A turn-based env: an agent's reward is what it has earned since its turn, as `last` says."""

    def __init__(self, env: Any, log: PackageLog):
        super().__init__(env)
        self._log = log
        self._has_acted: set[str] = set()

    def reset(self, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self._has_acted.clear()

    def step(self, action):
        name = self.agent_selection
        agent = self.possible_agents.index(name)
        _, reward, terminated, truncated, _ = self.env.last(observe=False)
        if name in self._has_acted:
            self._log.step(agent, reward, terminated, truncated)
        self._has_acted.add(name)
        super().step(action)


class Logs:
    """Installs the logs in the packages; `all` has one for each env that this process makes."""

    def __init__(self, monkeypatch: Any):
        self._monkeypatch = monkeypatch
        self.all: list[PackageLog] = []

    @property
    def episodes(self) -> list[list[Played]]:
        """Returns the episodes of all agents, of one env after the other."""
        return [own for log in self.all for own in log.episodes]

    def new(self, num_agents: int) -> PackageLog:
        self.all.append(PackageLog(num_agents))
        return self.all[-1]

    def _around(self, module: Any, name: str, wrap: Any) -> None:
        make = vars(module)[name]

        @functools.wraps(make)
        def logged(*args, **kwargs):
            return wrap(make(*args, **kwargs))

        self._monkeypatch.setattr(module, name, logged)

    def gymnasium(self) -> None:
        self._around(gym, "make", lambda env: LoggedEnv(env, self.new(1)))

    def envpool(self) -> None:
        self._around(
            envpool, "make_gymnasium", lambda pool: LoggedPool(pool, self.new(pool.config["num_envs"]))
        )

    def pettingzoo(self, module: Any, name: str) -> None:
        wrap = LoggedParallel if name == "parallel_env" else LoggedTurns
        self._around(module, name, lambda env: wrap(env, self.new(len(env.possible_agents))))

    def doom(self, time_limit: int) -> None:
        logs = self

        class LoggedGame(vizdoom.DoomGame):
            def init(self):
                self._log, self._tics = logs.new(1), 0
                return super().init()

            def make_action(self, buttons, tics=1):
                reward = super().make_action(buttons, tics)
                self._tics += tics
                is_over = self.is_episode_finished()
                is_cut = self._tics >= time_limit and not (is_over and not self.is_episode_timeout_reached())
                self._log.step(0, reward, is_over and not is_cut, is_cut)
                if is_over or is_cut:
                    self._tics = 0
                return reward

        self._monkeypatch.setattr(vizdoom, "DoomGame", LoggedGame)

    def generals(self, time_limit: int) -> None:
        logs = self
        own: dict[
            int, tuple[list[str], PackageLog]
        ] = {}  # by the names of an env's players, kept for their id

        def step(game, actions):
            returned = Game.step(game, actions)
            names = game.agents
            if id(names) not in own:
                own[id(names)] = names, logs.new(len(names))
            is_won = game.winner is not None
            for agent, name in enumerate(names):
                reward = (game.winner == name) - (game.loser == name)
                own[id(names)][1].step(agent, reward, is_won, not is_won and game.time >= time_limit)
            return returned

        self._monkeypatch.setattr(LeanGame, "step", step, raising=False)

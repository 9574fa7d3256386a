"""Scores and statistics of episodes from the infos of an EnvPool, for all its copies at once."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from sample_factory.envs.protocol import EPISODE_CONTINUES

NO_INFOS = ("env_id", "ram")
SUCCESS = ("is_success", "success", "solved")
# Infos that say nothing about an episode, or that the framework counts itself.
NO_STATISTIC = re.compile(
    r"(env_id|lives|terminated|elapsed_step|steps_left|current_player|legal_action_mask|id|ko|is_psk)$"
    r"|reward|model_|oracle_|.*(task_id|mission_id|seed|episode_number)$"
)


class EnvPoolInfos:
    """Adds entries with a meaning for the framework to the infos of each step, see `true_objective`,
    `extra_stats` and EPISODE_CONTINUES in protocol.py. All arrays have an entry for each agent.

    Atari: `true_objective` is the score of the whole game before clipping, and an episode that ends with a
    life continues. Other envs: `episode_extra_stats` are the numbers at the end of the episode, and `success`
    is whether the task was solved at any time in it.
    """

    def __init__(self, states: Mapping[str, Any], num_copies: int, num_players: int):
        """states: the shape of every array that EnvPool returns, by its key."""
        num_agents = num_copies * num_players
        self._num_copies = num_copies
        self._num_players = num_players
        self._has_lives = {"info:lives", "info:terminated", "info:reward"} <= states.keys()
        self._scores = np.zeros(num_agents)  # of the games so far
        self._success_key = next((key for key in SUCCESS if f"info:{key}" in states), None)
        self._has_succeeded = np.zeros(num_agents, bool)
        self._statistics = _statistics(states)

    def reset(self) -> None:
        """Begins the first episodes of all agents."""
        self._scores[:] = 0.0
        self._has_succeeded[:] = False

    def by_agent(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Returns EnvPool's infos, which have an entry for each copy or player, with one for each agent."""
        of_players = infos.pop("players")
        for key in NO_INFOS:
            infos.pop(key, None)
            of_players.pop(key, None)
        if self._num_players > 1:
            infos = {key: self._repeat(value) for key, value in infos.items()}
        return {**infos, **of_players}

    def _repeat(self, value: np.ndarray) -> np.ndarray:
        return value if len(value) > self._num_copies else value.repeat(self._num_players, axis=0)

    def add(self, infos: dict[str, Any], terminated: np.ndarray, truncated: np.ndarray) -> None:
        """Adds the entries about the episodes that ended in a step, which `infos` belong to."""
        if self._has_lives:
            self._scores += infos["reward"]
        if self._success_key is not None:
            self._has_succeeded |= infos[self._success_key] > 0
        ended = terminated | truncated
        if not ended.any():
            return
        if self._has_lives:
            continues = terminated & (infos["terminated"] == 0)
            infos[EPISODE_CONTINUES] = continues
            infos["true_objective"] = self._scores.copy()
            self._scores[ended & ~continues] = 0.0
        statistics = {key: infos[key].astype(float) for key in self._statistics}
        if self._success_key is not None:
            statistics["success"] = self._has_succeeded.astype(float)
            self._has_succeeded[ended] = False
        if statistics:
            infos["episode_extra_stats"] = statistics


def _statistics(states: Mapping[str, Any]) -> list[str]:
    """Returns the infos that are one number for each agent and describe its episode."""
    names = []
    for key, spec in states.items():
        name = key.removeprefix("info:").removeprefix("players.")
        is_number = tuple(spec.shape) in ((), (-1,))
        if key.startswith("info:") and is_number and name not in SUCCESS and not NO_STATISTIC.match(name):
            names.append(name)
    return names

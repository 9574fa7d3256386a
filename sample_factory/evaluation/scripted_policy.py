"""Scripted players of an env, such as bots, in the place of a trained policy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import ScriptedPlayers, find_ability
from sample_factory.envs.protocol import MultiAgentEnv
from sample_factory.spaces.actions import action_encoder


class ScriptedPolicy:
    """One scripted player of an env."""

    def __init__(self, player: str, players: ScriptedPlayers, encode: Callable[[Any], np.ndarray]):
        self._player = player
        self._players = players
        self._encode = encode

    def act(self, agent: int) -> np.ndarray:
        """Returns the action that the player chooses for an agent now, [K] float32."""
        return self._encode(self._players.scripted_action(self._player, agent))


def load_scripted(player: str, env: MultiAgentEnv) -> ScriptedPolicy:
    """Returns a scripted player of the env. Raises ConfigError if it has none of this name."""
    players = find_ability(env.env, ScriptedPlayers)
    known = players.scripted_players()
    if player not in known:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise ConfigError(f"--opponent_player={player}: the env has no such player; {has}")
    return ScriptedPolicy(player, players, action_encoder(env.kinds.spaces[0].action))

"""Sends values of the run to the envs of one split."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sample_factory.exchange.messages import NewShaping, NewTrainingInfo
from sample_factory.sampling.matchmaking.matchmaker import PlayerAssignment
from sample_factory.sampling.rollout.guarded_env import GuardedEnv


class ValuesForEnvs:
    """Sends each env the reward shaping of its agents' policies, and the training info of its first agent's
    policy. Keeps both by policy, since another policy may play an agent from its next episode on.

    An env is reset at the end of the step that ends a match. So it receives the training info for the next
    match during the current match; only an env that resets itself receives the info for the current match.
    """

    def __init__(self, envs: Sequence[GuardedEnv], players: PlayerAssignment, agents_per_env: int):
        self._envs = envs
        self._players = players
        self._agents_per_env = agents_per_env
        self._shaping: dict[int, Mapping[str, Any]] = {}  # by policy; absent: the env's default
        self._training_info: dict[int, Mapping[str, Any]] = {}  # by policy
        self._sent: dict[int, Mapping[str, Any]] = {}  # by env: the newest training info it got
        self._are_reset = False  # all envs, for their first matches

    def update(self, message: NewShaping | NewTrainingInfo) -> None:
        """Stores the values of a message and sends them to envs. Must not be called while the envs are in the
        middle of a step."""
        match message:
            case NewShaping(policy_id, shaping):
                self.set_shaping(policy_id, shaping)
            case NewTrainingInfo(policy_id):
                self.set_training_info(policy_id, message.training_info)

    def set_shaping(self, policy_id: int, shaping: Mapping[str, Any]) -> None:
        """Sets the reward shaping of all agents that a policy plays now or later, from their next episode."""
        self._shaping[policy_id] = shaping
        agents = range(len(self._players.policies))
        self._send_shaping(agent for agent in agents if self._players.policies[agent] == policy_id)

    def set_training_info(self, policy_id: int, training_info: Mapping[str, Any]) -> None:
        """Sets the training info of all envs in which a policy plays the first agent, now or later."""
        self._training_info[policy_id] = training_info
        self._send_training_info(range(len(self._envs)))

    def after_reset(self) -> None:
        """Sends each env the training info for its next match. Must be called after the first reset of all
        envs."""
        self._are_reset = True
        if self._training_info:
            self._send_training_info(range(len(self._envs)))

    def begin_episodes(self, agents: Iterable[int], envs: Iterable[int]) -> None:
        """Sends reward shaping for `agents`, which begin an episode, and training info to `envs`, which begin
        a match."""
        if self._shaping:
            self._send_shaping(agents)
        if self._training_info:
            self._send_training_info(envs)

    def _send_shaping(self, agents: Iterable[int]) -> None:
        for agent in agents:
            shaping = self._shaping.get(int(self._players.policies[agent]))
            if shaping is not None:
                env, agent_of_env = divmod(int(agent), self._agents_per_env)
                self._envs[env].set_reward_shaping(shaping, agent_of_env)

    def _send_training_info(self, envs: Iterable[int]) -> None:
        for env in envs:
            if self._are_reset and not self._envs[env].resets_itself:
                policy = self._players.next_policy(env)
            else:
                policy = int(self._players.policies[env * self._agents_per_env])
            training_info = self._training_info.get(policy)
            if training_info is not None and training_info is not self._sent.get(env):
                self._sent[env] = training_info
                self._envs[env].set_training_info(training_info)

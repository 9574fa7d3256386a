"""Where the agents of one split see and act: each in the memory of its kind."""

import numpy as np

from sample_factory.envs.protocol import ObservationRows
from sample_factory.exchange.trajectory_buffers import TrajectoryBuffers


class AgentMemory:
    """The observations and actions in the trajectory buffers, for agents that may differ in their spaces."""

    def __init__(self, buffers: TrajectoryBuffers, num_envs: int):
        kinds, kind_of_agent = buffers.kinds, buffers.topology.kind_of_agent
        self._outputs, self._rnn_state, self._obs = buffers.outputs, buffers.rnn_state, kinds[0].obs
        self._rollout = buffers.topology.rollout
        self._action_columns = slice(0, max(kind.rows.num_action_values for kind in kinds))
        self._obs_of_agent, self._agents_by_kind = None, [(self._obs, slice(None))]
        if len(kinds) > 1:
            self._obs_of_agent = [kinds[kind].obs for kind in kind_of_agent]
            of_all = np.tile(kind_of_agent, num_envs)
            self._agents_by_kind = [(kind.obs, np.flatnonzero(of_all == i)) for i, kind in enumerate(kinds)]

    def rows(self, buffers: np.ndarray, step: int) -> ObservationRows:
        """Of the agents of one env, with these buffers."""
        return ObservationRows(self._obs, buffers, step, self._obs_of_agent)

    def actions(self, buffers: np.ndarray, step: int) -> np.ndarray:
        """A copy, [n, K] float32; K is that of the kind with the most action values."""
        return self._outputs[buffers, step, self._action_columns]

    def carry_over(self, full: np.ndarray, fresh: np.ndarray) -> None:
        """Of all agents of a split: the last observation of a rollout is the first of the next one, and the
        recurrent state goes on."""
        self._rnn_state[fresh] = self._rnn_state[full]
        for obs, agents in self._agents_by_kind:
            for array in obs.values():
                array[fresh[agents], 0] = array[full[agents], self._rollout]

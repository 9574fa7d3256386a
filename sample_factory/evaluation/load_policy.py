"""Trained policies for a user's own code: `sample_factory.load_policy`."""

import contextlib
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from sample_factory.config.command import OF_PLAYING, Command
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.contract import check_observation
from sample_factory.envs.env_family import EnvFamily, UnknownEnvError
from sample_factory.envs.env_info import OwnSpaces, probe_own_spaces
from sample_factory.envs.env_registry import resolve_family, resolve_trained_family
from sample_factory.envs.protocol import EnvConfig, EnvContractError, ObservationRows
from sample_factory.envs.wrappers.frame_stack import FrameHistory, stacked_space
from sample_factory.evaluation.policy import build_model, load_weights
from sample_factory.evaluation.policy_choice import LATEST, chosen_policies, find_checkpoint, flags_of_call
from sample_factory.exchange.run_plan import ActionChoice
from sample_factory.launch.objects_of_call import with_names
from sample_factory.models.actor_critic import ActorCritic
from sample_factory.runtime.failures import Failure, one_line
from sample_factory.spaces.actions import action_decoder, batch_action_decoder
from sample_factory.spaces.agent_kinds import AgentKinds
from sample_factory.spaces.observations import batch_layout, observation_layout, without_entries

SINGLE = ""  # name of the agent, if `act` takes a single observation
LOAD_POLICY = Command(
    name="load_policy",
    experiment="saved",
    reads=OF_PLAYING - {"seed", "levels"} | {"eval_deterministic", "continuous_actions_sample", "device"},
    instead=dict.fromkeys(("eval_episodes", "max_num_episodes"), "the loop that calls `act` decides"),
)


class LoadedPolicy:
    """A trained policy that acts with raw observations of its env, for one env, several envs or named agents.

    Until `reset`, it remembers the past of each episode: the recurrent state, and the last images with
    --env_framestack. Observations and actions have the same form as in the env that `make_env` returns.

    For example, in a vector env that resets in the same step:

        policy.reset(num_envs=8)
        actions = policy.act(observations)  # [8, ...]
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        policy.reset(terminated | truncated)

    Attributes:
        observation_space: Space of one agent's observation, without the entries of --critic_only_keys, which
            `act` neither needs nor reads.
        action_space: Space of one agent's action.
    """

    def __init__(
        self,
        model: ActorCritic,
        choice: ActionChoice,
        spaces: OwnSpaces,
        num_frames: int,
        make_env: Callable[[str | None], Any],
    ):
        """Wraps a model for one env at first.
        choice: how actions are chosen, e.g. whether the most likely one is taken. spaces: of one agent.
        num_frames: value of --env_framestack. make_env: makes an env as in training, with a render mode."""
        self.observation_space, self.action_space = spaces
        self._model = model.eval()
        self._choice = choice
        self._num_frames = num_frames
        self._make_env = make_env
        self._count: int  # of rows: envs or agents
        self._is_first: np.ndarray  # which rows begin an episode, bool [count]
        self.reset()

    def reset(
        self,
        mask: np.ndarray | Sequence[bool] | None = None,
        *,
        num_envs: int | None = None,
        agents: Sequence[Hashable] | None = None,
    ) -> None:
        """Forgets the past; call it whenever an episode begins.

        Give at most one argument. Without an argument, as after loading, `act` takes a single observation.

        Args:
            mask: Bool [num_envs], or one entry for each agent. Only the True ones forget; the number of envs,
                or the names of the agents, do not change. E.g. `terminated | truncated` of a vector env.
            num_envs: `act` takes a batch of observations with a first axis of this size, e.g. of a
                gymnasium.vector.VectorEnv.
            agents: Names of agents, e.g. `env.possible_agents` of PettingZoo. `act` takes a dict by agent;
                each of these agents acts with this policy, and has a memory of its own.

        Raises:
            ValueError: Several arguments were given, or the mask has another shape or dtype.
        """
        if sum(given is not None for given in (mask, num_envs, agents)) > 1:
            raise ValueError("reset: give mask, num_envs or agents, and only one of them")
        if mask is not None:
            chosen = np.asarray(mask)
            if chosen.shape != (self._count,) or chosen.dtype != np.bool_:
                raise ValueError(
                    f"reset: the mask has shape {chosen.shape} and dtype {chosen.dtype}; it should be bool "
                    f"of shape ({self._count},)"
                )
            self._is_first |= chosen
            return
        self._is_batch = num_envs is not None
        self._agents = [SINGLE] if agents is None else list(agents)  # unless it is a batch
        self._has_names = agents is not None
        self._count = len(self._agents) if num_envs is None else num_envs
        self._space = self.observation_space
        if self._is_batch:
            self._space = gym.vector.utils.batch_space(self.observation_space, self._count)
        to_layout = batch_layout if self._is_batch else observation_layout
        self._flatten = to_layout(self.observation_space).flatten
        to_decoder = batch_action_decoder if self._is_batch else action_decoder
        self._decode = to_decoder(self.action_space)
        stored = observation_layout(self.observation_space).space
        kinds = AgentKinds.one(stored, self.action_space, self._count)
        self._frames = FrameHistory(kinds, self._num_frames) if self._num_frames > 1 else None
        self._rows = ObservationRows.allocate(kinds if self._frames is None else self._frames.kinds)
        self._rnn_state = torch.zeros(self._count, self._model.state_size, device=self._model.device)
        self._is_first = np.ones(self._count, bool)

    def act(self, observation: Any) -> Any:
        """Returns the action for an observation of the env.

        Args:
            observation: A member of the env's observation space. After `reset(num_envs=n)`: a batch as a
                vector env returns it (an array [n, ...]; for a Dict or Tuple space a dict or tuple of
                arrays). After `reset(agents=...)`: a dict of observations by agent; agents that it does not
                contain forget their past.

        Returns:
            A member of `action_space`. After `reset(num_envs=n)`: a batch of actions as a vector env takes
                it, [n, ...] with the dtype of `action_space`, clipped to the bounds of a Box. After
                `reset(agents=...)`: a dict of actions by agent.

        Raises:
            ValueError: The observation is not of its space; the message says what is expected.
        """
        rows = self._rows if self._frames is None else self._frames.advance()
        if self._is_batch:
            expected = f"a batch of {self._count} observations"
            with _explains_misfit(self._space, observation, expected, "num_envs=n, or without arguments"):
                rows.write_all(self._flatten(observation))
            present = np.ones(self._count, bool)
        else:
            present = self._write_agents(observation if self._has_names else {SINGLE: observation}, rows)
        actions = self._infer()
        self._is_first = ~present
        if self._is_batch:
            return self._decode(actions)
        decoded = {
            agent: self._decode(row)
            for agent, row, is_present in zip(self._agents, actions, present)
            if is_present
        }
        return decoded if self._has_names else decoded[SINGLE]

    def make_env(self, render_mode: str | None = None) -> Any:
        """Returns a new env with the flags of the experiment, as it was made in training.

        Its class depends on the env's family: for some families a vector env or an env of several agents.

        Args:
            render_mode: Render mode of Gymnasium, such as "human" or "rgb_array"; None does not render.

        Returns:
            An env with `reset` and `step`, such as a gymnasium.Env.
        """
        return self._make_env(render_mode)

    def _write_agents(self, observations: Any, rows: ObservationRows) -> np.ndarray:
        """Writes observations, agent name -> observation, into `rows`, one row for each agent named in
        `reset`. Returns which of these agents have an observation, bool [number of agents]."""
        if not isinstance(observations, Mapping) or not set(observations) <= set(self._agents):
            given = list(observations) if isinstance(observations, Mapping) else type(observations).__name__
            raise ValueError(f"act: got {given}; expected a dict with observations of {self._agents}")
        for row, agent in enumerate(self._agents):
            if agent not in observations:
                rows.clear(row)
                continue
            own = observations[agent]
            expected = f"agent {agent!r}" if self._has_names else "one observation"
            reset = "" if self._has_names else "num_envs=n"
            with _explains_misfit(self._space, own, expected, reset):
                rows.write(row, self._flatten(own))
        return np.array([agent in observations for agent in self._agents])

    def _infer(self) -> np.ndarray:
        """Runs the network on the rows that were written, and keeps its recurrent state. Returns a row of K
        action values for each env or agent, [rows, K] float32."""
        if self._is_first.any():
            self._rnn_state[self._is_first] = 0.0
            if self._frames is not None:
                self._frames.restart(self._is_first)
        if self._frames is not None:
            self._frames.write_stacks(self._rows)
        device = self._model.device
        batch = {key: torch.from_numpy(array[:, 0]).to(device) for key, array in self._rows.arrays.items()}
        output = self._model.act(batch, self._rnn_state, *self._choice)
        self._rnn_state = output.rnn_state
        actions: np.ndarray = output.actions.cpu().numpy()
        return actions


@contextlib.contextmanager
def _explains_misfit(
    space: gym.Space[Any], observation: Any, expected: str, reset: str = ""
) -> Iterator[None]:
    """Converts an exception about an observation that does not fit into a ValueError that says what is
    expected.
    expected: what the observation should be, e.g. "one observation".
    reset: arguments of `reset` that the message suggests; "" suggests nothing."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, EnvContractError) as error:
        reason = str(error)
        try:
            check_observation(space, observation)
        except EnvContractError as better:
            reason = str(better)
        hint = f"; for another number of them, call reset({reset}) first" if reset else ""
        text = f"act: {reason}. Expected {expected} of {' '.join(str(space).split())}{hint}"
        raise ValueError(text) from None


def load_policy(
    experiment: str | os.PathLike[str],
    train_dir: str | os.PathLike[str] | None = None,
    *,
    policy_index: int | None = None,
    checkpoint: str | os.PathLike[str] = LATEST,
    deterministic: bool = False,
    observation_space: gym.Space[Any] | None = None,
    action_space: gym.Space[Any] | None = None,
    cfg: str | os.PathLike[str] | None = None,
    **flags: Any,
) -> LoadedPolicy:
    """Loads a trained policy that acts with raw observations of the env.

    For example:

        policy = sample_factory.load_policy("cartpole", deterministic=True)
        env = policy.make_env()
        observation, info = env.reset(seed=1)
        action = policy.act(observation)

    Args:
        experiment: Name of an experiment in `train_dir`, its folder, or the file of a checkpoint. The
            settings of a file are in the cfg.json of a folder above it, or in `cfg`.
        train_dir: Folder of all experiments; by default ./train_dir.
        policy_index: Index of the policy, in an experiment with several; by default 0, or the index in the
            name of the checkpoint file's folder.
        checkpoint: "latest", "best", "milestone:VERSION" or the path of a file, unless `experiment` is one.
        deterministic: Whether to take the most likely action, or the mean of a continuous one, instead of a
            random one.
        observation_space: Space of one agent's observation, as the env has it. By default an env is made in
            another process to get both spaces. With both, the env and its package may be missing.
        action_space: Space of one agent's action, as the env has it.
        cfg: The cfg.json of a checkpoint file without an experiment folder.
        flags: Other flags, such as `device="gpu"` (by default the CPU, which is faster for a few envs), or
            flags of the env's family.

    Returns:
        A LoadedPolicy, for one env until its `reset` is called for several envs or agents.

    Raises:
        ConfigError: A flag is wrong, or there is no such experiment or checkpoint; the message has the names
            that exist. A subclass of ValueError.
        CheckpointError: The checkpoint cannot be used.
    """
    named = flags_of_call(experiment, train_dir, policy_index, checkpoint, cfg)
    needs_env = observation_space is None or action_space is None
    resolve = resolve_trained_family if needs_env else _family_or_none
    keywords = {**named, "eval_deterministic": deterministic, **flags}
    command = LOAD_POLICY._replace(experiment="new") if "cfg" in named else LOAD_POLICY
    config = parse_config([], resolve, command, True, with_names(keywords))
    (choice,) = chosen_policies(config)
    find_checkpoint(config, choice)  # raises, before an env is made
    family = resolve(config.env_name)
    if observation_space is None or action_space is None:
        advice = "; give observation_space and action_space"
        probed = probe_spaces(config, choice.policy_index, advice)
        observation_space = probed.observation if observation_space is None else observation_space
        action_space = probed.action if action_space is None else action_space
    if isinstance(observation_space, gym.spaces.Dict):
        observation_space = without_entries(observation_space, config.model.critic_only_keys)
    num_frames = config.env.env_framestack
    stored = stacked_space(observation_layout(observation_space).space, num_frames)
    model = build_model(config, choice.policy_index, stored, action_space)
    load_weights(config, choice, model)

    def make_env(render_mode: str | None) -> Any:
        return family.make(config.namespace(), EnvConfig(0, 0, 0), render_mode)

    how = ActionChoice(config.evaluation.eval_deterministic, config.evaluation.continuous_actions_sample)
    return LoadedPolicy(model, how, OwnSpaces(observation_space, action_space), num_frames, make_env)


def _family_or_none(env_name: str) -> EnvFamily:
    """Returns the family of an env. If the env is not registered or not installed, returns a substitute
    family, which raises ConfigError when an env is to be made."""
    try:
        return resolve_family(env_name)
    except (UnknownEnvError, ImportError) as error:
        reason = str(error)

    def refuse(full_env_name: str) -> None:
        raise ConfigError(f"make_env: {reason}")

    return EnvFamily(env_name, refuse, None, {})


def probe_spaces(config: Config, policy_index: int, advice: str = "") -> OwnSpaces:
    """Makes an env in another process, and returns the spaces of the agents that a policy plays. Raises
    ConfigError if the env cannot be made; the message ends with `advice`."""
    family = resolve_family(config.env_name)
    try:
        return probe_own_spaces(family, config.namespace(), policy_index)
    except (Failure, ConfigError) as failure:
        text = f"env {config.env_name} cannot be made to get its spaces: {one_line(failure)}"
        raise ConfigError(text + advice) from failure

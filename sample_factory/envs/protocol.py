"""The interface of an env inside the framework: multi-agent, with observations written in place."""

import contextlib
import dataclasses
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from sample_factory.config.flags import ConfigError
from sample_factory.envs.abilities import TrainingInfo, find_abilities
from sample_factory.runtime.child_side import pass_on
from sample_factory.runtime.failures import Explained, Failure, one_line
from sample_factory.spaces.agent_kinds import AgentKinds

Info = Mapping[str, Any]
EndInfos = Mapping[int, Info]  # by agent
EMPTY_INFO: Info = {}
NO_END_INFOS: EndInfos = {}
Picture = np.ndarray  # [height, width, 3] uint8
# Key of an end info: whether the episode ended for the learner only, and the game continues, as when a life
# is lost in Atari. Rewards and lengths are summed up until the game ends, and reported as one episode.
EPISODE_CONTINUES = "episode_continues"
# Key of an end info: env frames of the last step that were not played, since the episode ended within it.
FRAMES_LEFT_OUT = "frames_left_out"
# Key of an end info: name of the level that was played in the episode, a text; results are shown by level.
LEVEL = "episode_level"
# Key of the info of each step: what the step has cost, a number beside the reward. Its sum over an episode is
# reported as a statistic of this name, and an algorithm may keep the mean of these sums below a limit.
COST = "cost"
SEED_LIMIT = 2**31  # every env accepts seeds below


class EnvContractError(Explained, ValueError):
    """Raised if an env returned something that contradicts its spaces or the API of envs.

    The message says what was returned and what it should be; the Failure that is made of it names the env.
    """


@contextlib.contextmanager
def named_faults(env_name: str, call: str) -> Iterator[None]:
    """Turns every exception of an env's code but ConfigError into a Failure that names the env and the call;
    in the main process, KeyboardInterrupt and SystemExit pass through, see `pass_on`.

    call: "make", "reset", "step" or "close".
    """
    try:
        yield
    except BaseException as error:  # any error of a user's env
        if isinstance(error, (Failure, ConfigError)):
            raise
        pass_on(error)
        text = one_line(error) if isinstance(error, Explained) else f"{call} raised {one_line(error)}"
        raise Failure.of(error, f"env {env_name!r}", text) from error


@dataclasses.dataclass(slots=True, eq=False)
class ObservationRows:
    """Destination of the observations of one env: agent i writes to row (buffers[i], step).

    arrays: by observation key, [num_buffers, num_steps, *observation_shape].
    buffers: [num_agents] int.
    arrays_of_agent: where agents differ in their spaces, the arrays of each agent, in place of `arrays`.

    The env writes, and never keeps a view: the rows belong to the trajectory.
    """

    arrays: Mapping[str, np.ndarray]
    buffers: np.ndarray
    step: int
    arrays_of_agent: Sequence[Mapping[str, np.ndarray]] | None = None

    @classmethod
    def allocate(cls, kinds: AgentKinds) -> "ObservationRows":
        """Returns rows in new memory, one step for each agent, to drive an env outside the training
        system."""
        num_agents = len(kinds.of_agent)
        of_kind = [
            {
                key: np.zeros((num_agents, 1, *space.shape), space.dtype)
                for key, space in spaces.observation.spaces.items()
            }
            for spaces in kinds.spaces
        ]
        of_agent = [of_kind[kind] for kind in kinds.of_agent] if len(of_kind) > 1 else None
        return cls(of_kind[0], np.arange(num_agents), 0, of_agent)

    def arrays_of(self, agent: int) -> Mapping[str, np.ndarray]:
        """Returns the arrays, by key, that the agent's observation is written to."""
        return self.arrays if self.arrays_of_agent is None else self.arrays_of_agent[agent]

    def view(self, agent: int) -> dict[str, np.ndarray]:
        """Returns the row of one agent as writable views, one per observation key."""
        buffer = self.buffers[agent]
        # The trailing Ellipsis makes a view even of a scalar observation.
        return {key: array[buffer, self.step, ...] for key, array in self.arrays_of(agent).items()}

    def write(self, agent: int, observation: Mapping[str, np.ndarray]) -> None:
        """Copies one agent's observation, by key, into its row. Raises EnvContractError if a shape or dtype
        does not fit."""
        buffer = self.buffers[agent]
        for key, array in self.arrays_of(agent).items():
            value = observation[key]
            check_array(key, value, array.shape[2:], array.dtype)
            array[buffer, self.step] = value

    def clear(self, agent: int) -> None:
        """Fills one agent's row with zeros."""
        buffer = self.buffers[agent]
        for array in self.arrays_of(agent).values():
            array[buffer, self.step] = 0

    def write_all(self, observations: Mapping[str, np.ndarray]) -> None:
        """Copies the observations of all agents, [num_agents, *shape] per key, into their rows; all agents
        are of one kind. Raises EnvContractError if a shape or dtype does not fit."""
        for key, array in self.arrays.items():
            value = observations[key]
            check_array(key, value, (len(self.buffers), *array.shape[2:]), array.dtype)
            array[self.buffers, self.step] = value


def check_array(key: str, value: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raises EnvContractError unless an observation entry has this shape, and values that this dtype can
    hold.

    NumPy would silently broadcast a smaller array, truncate fractions, or wrap integers around: 300 as uint8
    is 44. key: name of the entry in the message.
    """
    if value.shape != shape:
        raise EnvContractError(
            f"observation {key!r} has shape {value.shape}, but its observation space says {shape}"
        )
    if value.dtype == dtype:
        return
    if value.dtype.kind not in "biuf" or (value.dtype.kind == "f" and dtype.kind != "f"):
        raise EnvContractError(
            f"observation {key!r} has dtype {value.dtype}, but its observation space says {dtype}"
        )
    if dtype.kind in "iu" and value.size:
        limits = np.iinfo(dtype)
        for extreme in (value.min(), value.max()):
            if not limits.min <= extreme <= limits.max:
                raise EnvContractError(
                    f"observation {key!r} has the value {extreme}, but its observation space says {dtype}, "
                    f"{limits.min} to {limits.max}"
                )


class StepResult(NamedTuple):
    """Result of one env step. Observations are already written to the rows. Arrays have shape [num_agents].

    rewards: raw rewards, float.
    terminated: the episode ended in a terminal state (its value is 0).
    truncated: the episode was cut (time limit); never True together with terminated.
    end_infos: by agent, the infos of agents whose episode ended in this step; an agent without an info may be
        absent. Keys with a meaning: see end_infos.py.
    active: which agents act in the coming step, bool; None: all of them.
    costs: COST in the infos of this step, raw, 0 for an agent without a cost; None if no agent has one.

    All contents are copies, because the user's env may overwrite its own arrays and dicts in any later call.
    """

    rewards: Sequence[float] | np.ndarray
    terminated: Sequence[bool] | np.ndarray
    truncated: Sequence[bool] | np.ndarray
    end_infos: EndInfos
    active: np.ndarray | None
    costs: Sequence[float] | np.ndarray | None = None


def active_agents(infos: Iterable[Info]) -> np.ndarray | None:
    """Returns which agents act in the coming step, [num_agents] bool, by `is_active` (default: True) in each
    agent's info; None if all of them act."""
    active = [info.get("is_active", True) for info in infos]
    return None if all(active) else np.array(active, bool)


class TrainingInfoBox:
    """Holds the newest values of the training run for an env, until its adapter delivers them; see
    TrainingInfo.

    receivers: objects of the env that get the values. before_reset: functions that `deliver` calls last.
    """

    def __init__(self, env: Any, resets_itself: bool):
        """Finds the objects of a user's env that receive values of the training run. resets_itself: whether
        the env begins episodes without a call, so that it gets new values at once."""
        self.receivers = find_abilities(env, TrainingInfo)
        self.before_reset: list[Callable[[], None]] = []
        self.resets_itself = resets_itself
        self._waiting: Mapping[str, Any] | None = None

    @property
    def has_receiver(self) -> bool:
        """Whether the env has the ability TrainingInfo, and so gets values of the training run."""
        return bool(self.receivers)

    def put(self, training_info: Mapping[str, Any]) -> None:
        """Stores `training_info`, which the env gets before its next episode. An env that resets itself gets
        it at once; EnvContractError is raised if the env rejects it."""
        self._waiting = training_info
        if self.resets_itself:
            self.deliver()

    def deliver(self) -> None:
        """Passes values that were stored by `put` to the env, then calls the functions in `before_reset`.
        To be called before each reset, but not when a game goes on after a lost life. Raises
        EnvContractError if the env rejects the values."""
        if self._waiting is not None:
            training_info = self._waiting
            self._waiting = None
            for receiver in self.receivers:
                try:
                    receiver.set_training_info(training_info)
                except Exception as error:  # any error of a user's env
                    raise EnvContractError(
                        f"set_training_info({reprlib.repr(dict(training_info))}) raised {one_line(error)}"
                    ) from error
        for call in self.before_reset:
            call()


class MultiAgentEnv(Protocol):
    """Interface of envs inside the framework: adapters make one of each env, and the wrappers in this package
    wrap it.

    - Every env has `num_agents` agents. Each step acts with all of them; `active` of a step says which agents
      act in the next one, and the actions of the others have no effect.
    - Observations are written into the rows of the caller, by key, in the shape and dtype of `kinds`; rewards
      are float and ends bool, one for each agent.
    - The env resets itself: where a step ends an agent's episode, the observation that the step writes is the
      first one of the next episode. Only the first episodes begin with `reset`.
    - An end is either terminated, and no reward follows, or truncated, and the value of the state before the
      end stands for what would follow. Never both.

    For example, a hundred steps of random actions:

        env = adapt(gymnasium.make("CartPole-v1"))
        rows = ObservationRows.allocate(env.kinds)
        draw_actions = RandomActions(env.kinds, seed=0)
        active = env.reset(0, rows)
        for _ in range(100):
            rewards, terminated, truncated, end_infos, active, costs = env.step(draw_actions(rows), rows)
        env.close()

    env: the env that is adapted, as its author wrote it.
    kinds: the spaces of the agents.
    training_info: passes values of the run on to the env.
    next_seeds: seeds that the caller adds; an env of one agent removes the last one at the end of an episode,
        and resets with it. Other envs ignore them.
    at_end: functions that `step` calls at the end of an episode (of all agents, or of the first copy) while
        `render` still draws its last state; not called in envs that begin the next episode themselves, such
        as lists and SAME_STEP vector envs.
    steps_in_background: whether `send` and `receive` can be called in place of `step`; between them, the env
        computes in its own threads.
    takes_turns: whether an agent that is inactive within its episode waits for its turn: rewards that it gets
        meanwhile, and the end of its episode, count for its last action. Otherwise the agent is absent.
    """

    env: Any
    num_agents: int
    kinds: AgentKinds
    training_info: TrainingInfoBox
    next_seeds: list[int]
    at_end: list[Callable[[], None]]
    steps_in_background: bool = False
    takes_turns: bool = False

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        """Starts the first episode of every agent, and writes the first observations to `into`. Returns which
        agents act in the first step, [num_agents] bool; None if all of them act. seed: None: a random
        seed."""

    def step(self, actions: np.ndarray, into: ObservationRows) -> StepResult:
        """Acts once with every agent, and writes the observations after the step to `into`. The actions of
        inactive agents have no effect.

        actions: [num_agents, num_action_values] float32; choices of discrete components are whole numbers.
        Where agents differ in their action spaces, all rows are as long as the longest action.
        """

    def send(self, actions: np.ndarray) -> None:
        """Starts a step in the background; `receive` ends it. actions: as in `step`."""
        raise TypeError(f"{type(self).__name__} does not step in the background")

    def receive(self, into: ObservationRows) -> StepResult:
        """Waits for the end of the step that `send` has started, and returns its result as `step` does."""
        raise TypeError(f"{type(self).__name__} does not step in the background")

    def render(self) -> Picture | list[Picture] | None:
        """Returns a picture, or all pictures since the last call (render mode "rgb_array_list"). Returns None
        if the env draws nothing, or draws in a window."""

    def close(self) -> None: ...


class EnvAround(MultiAgentEnv):
    """Base class of the wrappers of a MultiAgentEnv: forwards calls to the wrapped env.

    A subclass may replace the wrapped env between two episodes, as LevelSwitch does.
    """

    def __init__(self, env: MultiAgentEnv):
        self._env = env
        self.num_agents = env.num_agents
        self.kinds = env.kinds
        self.takes_turns = env.takes_turns

    @property
    def inner(self) -> MultiAgentEnv:
        """The wrapped env."""
        return self._env

    @property
    def env(self) -> Any:
        return self._env.env

    @property
    def training_info(self) -> TrainingInfoBox:  # type: ignore[override]
        return self._env.training_info

    @property
    def next_seeds(self) -> list[int]:  # type: ignore[override]
        return self._env.next_seeds

    @property
    def at_end(self) -> list[Callable[[], None]]:  # type: ignore[override]
        return self._env.at_end

    def reset(self, seed: int | None, into: ObservationRows) -> np.ndarray | None:
        return self._env.reset(seed, into)

    def render(self) -> Picture | list[Picture] | None:
        return self._env.render()

    def close(self) -> None:
        self._env.close()


class AttrDict(dict[str, Any]):
    """A dict whose entries can also be read and set as attributes."""

    __setattr__ = dict.__setitem__

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)


class EnvConfig(AttrDict):
    """Identifies one of the experiment's envs: the env number `vector_index` of a rollout worker. env_id
    seeds the env.

    worker_index and env_id are numbered across machines: with --num_nodes, they are unique in the run if all
    nodes have equally many workers and envs.
    levels_in_turn: if not 0, the number n of envs that play side by side. After each episode, each of them
        moves on by n levels, so that together they play all levels equally often. 0: levels follow
        --level_choice.
    """

    def __init__(self, worker_index: int, vector_index: int, env_id: int, levels_in_turn: int = 0):
        super().__init__(
            worker_index=worker_index,
            vector_index=vector_index,
            env_id=env_id,
            levels_in_turn=levels_in_turn,
        )

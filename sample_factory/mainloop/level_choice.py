"""Which level the envs of a policy play next. Imports little, because scripts import it to register one."""

import collections
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sample_factory.runtime.registry import Registry

if TYPE_CHECKING:
    from sample_factory.exchange.messages import EpisodeReport

WINDOW = 50  # last episodes of a level, whose older and newer half are compared
UNIFORM_SHARE = 0.2  # of the episodes, in which all levels are equally likely


class LevelChoice:
    """Decides in the main process how often the envs of one policy play each level; a subclass overrides the
    methods it needs.

    For example, to play the last level twice as often as each other level:

        class LastMost(sample_factory.LevelChoice):
            def weights(self, env_frames):
                return [1.0] * (len(self.levels) - 1) + [2.0]

        sample_factory.register_level_choice("last_most", LastMost)  # --level_choice=last_most

    examples/levels.py chooses by the results in the levels, and keeps these results when a run is resumed.

    Args:
        levels: Names of the levels.
        cfg: All flags, as attributes.
    """

    def __init__(self, levels: Sequence[str], cfg: Any):
        self.levels = tuple(levels)
        self.cfg = cfg

    def add(self, level: int, episode: "EpisodeReport") -> None:
        """Called when an episode of the policy in one of the levels has ended.

        Args:
            level: Index in `levels` of the level that was played.
            episode: The report of the episode, see `Observer.on_episode`.
        """

    def weights(self, env_frames: int) -> Sequence[float]:
        """Returns how often each level is played; the default plays all levels equally often.

        Each env draws a level by these weights before each of its episodes.

        Args:
            env_frames: Number of env frames that the policy was trained on so far.

        Returns:
            A number for each level: its frequency relative to the other levels. None may be negative, and not
                all may be 0.
        """
        return [1.0] * len(self.levels)

    def stage(self, env_frames: int) -> int:
        """Returns the number of the current stage of a curriculum. Whenever it grows, a milestone is kept.

        Args:
            env_frames: Number of env frames that the policy was trained on so far.

        Returns:
            An index that counts from 0; the default has one stage only.
        """
        return 0

    def state(self) -> Any:
        """Returns the state to save, from which `load` restores this object when the run is resumed.

        Returns:
            A value of types that JSON has; the default has no state and returns None.
        """
        return None

    def load(self, state: Any) -> None:
        """Restores a saved state; called before all other methods when a run is resumed.

        Args:
            state: The value that `state` returned in the earlier run.
        """


class InSequence(LevelChoice):
    """Plays one level after another, each for the same share of --train_for_env_steps."""

    def stage(self, env_frames: int) -> int:
        count = len(self.levels)
        return int(min(count - 1, env_frames * count // self.cfg.train_for_env_steps))

    def weights(self, env_frames: int) -> Sequence[float]:
        now = self.stage(env_frames)
        return [float(level == now) for level in range(len(self.levels))]


class Progress(LevelChoice):
    """Plays each level in proportion to how fast its mean reward changes, up or down. In a share
    UNIFORM_SHARE of the episodes, all levels are equally likely.

    The rate of change is the absolute learning progress of Matiisen et al. (2017), "Teacher-Student
    Curriculum Learning", section 3, and of Portelas et al. (2019), "Teacher algorithms for curriculum
    learning of deep RL in continuously parameterized environments", equation 1: the difference between the
    mean rewards of the newer and the older half of the last WINDOW episodes. A level without enough episodes
    gets the largest rate of all levels.
    """

    def __init__(self, levels: Sequence[str], cfg: Any):
        super().__init__(levels, cfg)
        self._rewards = [collections.deque[float](maxlen=WINDOW) for _ in levels]

    def add(self, level: int, episode: "EpisodeReport") -> None:
        if math.isfinite(episode.reward):
            self._rewards[level].append(episode.reward)

    def weights(self, env_frames: int) -> Sequence[float]:
        count = len(self.levels)
        known = [_progress(list(rewards)) for rewards in self._rewards]
        most = max((value for value in known if value is not None), default=1.0)
        values = [most if value is None else value for value in known]
        total = sum(values)
        if total == 0:
            return [1.0 / count] * count
        return [UNIFORM_SHARE / count + (1 - UNIFORM_SHARE) * value / total for value in values]

    def state(self) -> Any:
        return [list(rewards) for rewards in self._rewards]

    def load(self, state: Any) -> None:
        for rewards, saved in zip(self._rewards, state, strict=True):
            rewards.extend(map(float, saved))


def _progress(rewards: Sequence[float]) -> float | None:
    """Returns how far the mean reward of a level's newer episodes is from the mean reward of the older ones.
    rewards: rewards of the level's last episodes, oldest first; the first half are the older ones. Returns
        None for fewer than WINDOW / 2 rewards."""
    if len(rewards) < WINDOW // 2:
        return None
    middle = len(rewards) // 2
    older, newer = rewards[:middle], rewards[middle:]
    return abs(sum(newer) / len(newer) - sum(older) / len(older))


LevelChoiceFactory = Callable[[Sequence[str], Any], LevelChoice]
DRAWN_ALIKE = ("fixed", "uniform")  # need nothing of the main process
_REGISTRY = Registry(
    "level_choice",
    dict.fromkeys(DRAWN_ALIKE, LevelChoice) | {"sequence": InSequence, "progress": Progress},
)


def register_level_choice(name: str, factory: LevelChoiceFactory | str) -> None:
    """Registers a rule that decides which level is played next; --level_choice=name selects it.

    For example `sample_factory.register_level_choice("last_most", LastMost)`, with the class of
    `LevelChoice`'s example.

    Args:
        name: Value of the flag. Registering a name again replaces the rule.
        factory: A class derived from LevelChoice, or another function factory(levels, cfg) that returns a
            LevelChoice, called for each policy; or a "module:attribute" string, imported when a run starts.
    """
    _REGISTRY.register(name, factory)


def registered_level_choice(name: str) -> LevelChoiceFactory | str:
    """Returns the factory registered under a name, or the registered "module:attribute" string without
    importing it. Raises ConfigError for an unknown name; the message lists all names."""
    found: LevelChoiceFactory | str = _REGISTRY.find(name)
    return found

"""The ledger: what has happened in the plain package, step by step, and its comparison with the product."""

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.conformance.product import Trained, digests

AT_LEAST = 200  # episodes that are compared for each package


class PlainEpisode(NamedTuple):
    """An episode in the plain package. step: in which it ended, from 0. length: in env frames."""

    step: int
    agent: int
    reward: float
    length: int


@dataclass
class Plain:
    """What the plain package gave, [A] for each step, as the product should train on it.

    truncated: cut by a limit, and not terminated: bootstrapped. acted: whether the agent acts in the step.
    continues: whether an end is one for the learner only, and the game goes on.
    frames: env frames of each step.
    ended: the episodes, where they do not follow from these.
    infos: of ends, by (step, agent).
    """

    rewards: list[Any] = field(default_factory=list)
    terminated: list[Any] = field(default_factory=list)
    truncated: list[Any] = field(default_factory=list)
    acted: list[Any] = field(default_factory=list)
    continues: list[Any] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    ended: list[PlainEpisode] = field(default_factory=list)
    infos: dict[tuple[int, int], Mapping[str, Any]] = field(default_factory=dict)
    seen: list[dict[str, Any]] = field(default_factory=list)  # digests; one more than steps, or none

    def add(
        self,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        acted: Any = True,
        continues: Any = False,
        frames: int = 1,
    ) -> None:
        """Adds a step of all agents; flags may be those of all of them."""
        rewards = np.atleast_1d(np.array(rewards, float))
        self.rewards.append(rewards)
        named = (self.terminated, terminated), (self.truncated, truncated), (self.acted, acted)
        for column, values in (*named, (self.continues, continues)):
            column.append(np.broadcast_to(values, rewards.shape).copy())
        self.frames.append(frames)

    def see(self, **observations: Any) -> None:
        """Adds the observations before a step, by the product's keys, each [A, *shape] and of its dtype."""
        self.seen.append({key: digests(np.asarray(batch)) for key, batch in observations.items()})

    def episodes(self) -> list[PlainEpisode]:
        """Returns the episodes that have ended, by the steps in which each agent acts."""
        found = []
        for agent in range(len(self.rewards[0])):
            total, length = 0.0, 0
            for step, rewards in enumerate(self.rewards):
                total += rewards[agent]
                length += self.frames[step] * int(self.acted[step][agent])
                is_end = self.terminated[step][agent] or self.truncated[step][agent]
                if is_end and not self.continues[step][agent]:
                    found.append(PlainEpisode(step, agent, total, length))
                    total, length = 0.0, 0
        return sorted(found)


class Tally(NamedTuple):
    """What was compared of a package. differences: those that the table of conventions lists."""

    package: str
    episodes: int
    steps: int
    differences: int = 0

    @property
    def version(self) -> str:
        return importlib.metadata.version(self.package.partition(" ")[0])


def assert_equal(trained: Trained, plain: Plain) -> Tally:
    """Asserts that the product trains on, and reports, what the plain package gave. Returns the counts
    without the name of the package."""
    acted = np.stack(plain.acted).astype(bool)
    np.testing.assert_array_equal(trained.acted, acted, "which agents act")
    for name in ("terminated", "truncated"):
        np.testing.assert_array_equal(
            getattr(trained, name)[acted], np.stack(getattr(plain, name))[acted], name
        )
    rewards = np.stack(plain.rewards).astype(np.float32)
    np.testing.assert_array_equal(trained.rewards[acted], rewards[acted], "rewards")
    for key in plain.seen[0] if plain.seen else ():
        numbers = np.stack([by_key[key] for by_key in plain.seen])
        np.testing.assert_array_equal(trained.seen[key], numbers, f"digests of the observation {key}")
    own = [(e.step, e.agent, e.length) for e in trained.episodes]
    expected = sorted(plain.ended) or plain.episodes()
    assert sorted(own) == [(e.step, e.agent, e.length) for e in expected]
    returns = [e.reward for e in sorted(trained.episodes)]
    np.testing.assert_allclose(returns, [e.reward for e in expected], rtol=1e-6, atol=1e-9)
    for episode in trained.episodes:
        info = plain.infos.get((episode.step, episode.agent), {})
        numbers = {key: value for key, value in info.items() if isinstance(value, (int, float, np.generic))}
        assert {key: episode.info.get(key) for key in numbers} == pytest.approx(numbers), "infos of ends"
    return Tally("", len(expected), int(acted.sum()))

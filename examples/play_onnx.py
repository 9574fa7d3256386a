"""Plays an exported policy with onnxruntime and NumPy, without torch and without sample_factory.

    python -m sample_factory.train --env=gym_CartPole-v1 --experiment=pole --train_for_env_steps=200000
    python -m sample_factory export --experiment=pole --export_path=pole.onnx
    python examples/play_onnx.py pole.onnx --episodes=10
    python examples/play_onnx.py pole.onnx --episodes=10 --sample

For envs of Gymnasium with a single picture or vector as observation, or a Dict of those. The file says which
env it is, which inputs it has and what its actions mean: see sample_factory/exporting/README.md.
"""

import argparse
import json
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime


class Agent:
    """A policy in a file, with its memory."""

    def __init__(self, path: str, sample: bool, seed: int):
        """sample: draw actions at random, as in training, instead of the most likely ones."""
        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.metadata: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        self._observations = json.loads(self.metadata["observations"])
        self._actions = json.loads(self.metadata["actions"])
        self._outputs = [output.name for output in self._session.get_outputs()]
        self._sample = sample
        self._rng = np.random.default_rng(seed)
        self.reset()

    def reset(self) -> None:
        """Forgets the past, at the start of an episode."""
        size = int(self.metadata["rnn_state_size"])
        self._memory = {"rnn_state": np.zeros((1, size), np.float32)} if size else {}

    def act(self, observation: Any) -> Any:
        """Returns the action for an observation of the env."""
        inputs = dict(self._memory)
        for entry in self._observations:
            value = observation[entry["key"]] if isinstance(observation, dict) else observation
            inputs[entry["input"]] = np.asarray(value, entry["dtype"])[None]  # a batch of one
        outputs = dict(zip(self._outputs, self._session.run(None, inputs)))
        if self._memory:
            self._memory["rnn_state"] = outputs["next_rnn_state"]
        chosen = [(action["path"], self._choose(action, outputs)) for action in self._actions]
        return _joined(chosen)

    def _choose(self, action: dict[str, Any], outputs: dict[str, np.ndarray]) -> Any:
        """Returns a part of an action of the env. action: its description in the file."""
        if not self._sample:
            return outputs[action["output"]][0]
        if action["type"] == "Box":
            mean, stddev = outputs[action["mean"]][0], outputs[action["stddev"]][0]
            drawn = mean + stddev * self._rng.standard_normal(mean.shape)
            low = np.array(action["low"], float)  # NaN where there is no bound, which fmax and fmin ignore
            high = np.array(action["high"], float)
            clipped = np.fmin(np.fmax(drawn, low), high)
            dtype = outputs[action["output"]].dtype
            return (clipped if dtype.kind == "f" else np.rint(clipped)).astype(dtype)
        logits = outputs[action["logits"]][0]
        if action["type"] == "Discrete":
            return self._draw(logits) + action["start"]
        sizes = np.ravel(action["nvec"])
        choices = [self._draw(part) for part in np.split(logits, np.cumsum(sizes)[:-1])]
        drawn = np.reshape(choices, np.shape(action["nvec"])) + action["start"]
        return drawn.astype(outputs[action["output"]].dtype)

    def _draw(self, logits: np.ndarray) -> int:
        """Returns an index with probabilities softmax(logits)."""
        chances = np.exp(logits.astype(float) - logits.max())
        return int(self._rng.choice(len(logits), p=chances / chances.sum()))


def _joined(parts: list[tuple[list[Any], Any]]) -> Any:
    """Returns an action of the env: the only part, whose path is empty; or a dict or tuple of all parts, by
    their paths of keys and indices."""
    if not parts[0][0]:
        return parts[0][1]
    inner: dict[Any, list[tuple[list[Any], Any]]] = {}
    for (key, *path), value in parts:
        inner.setdefault(key, []).append((path, value))
    joined = {key: _joined(own) for key, own in inner.items()}
    return tuple(joined.values()) if 0 in joined else joined


def play(agent: Agent, env: gym.Env, episodes: int, seed: int) -> list[float]:
    """Returns the sum of the rewards of each episode."""
    frames_per_action = int(agent.metadata["env_frameskip"])
    returns = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed + episode)
        agent.reset()
        total = 0.0
        ended = False
        while not ended:
            action = agent.act(observation)
            for _ in range(frames_per_action):
                observation, reward, terminated, truncated, _ = env.step(action)
                total += float(reward)
                ended = terminated or truncated
                if ended:
                    break
        returns.append(total)
    return returns


def main(argv: list[str]) -> int:
    """Plays the episodes and prints their rewards. Returns the exit code."""
    usage = f"python {sys.argv[0]} FILE [--episodes=N] [--sample] [--seed=N]"
    if not argv:
        print(f"usage: {usage}", file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(usage=usage)
    parser.add_argument("file")
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args(argv)
    agent = Agent(flags.file, flags.sample, flags.seed)
    name = agent.metadata["env"]
    if not name.startswith("gym_") or agent.metadata["env_framestack"] != "1":
        print(f"error: this example plays envs gym_ID without --env_framestack, not {name}", file=sys.stderr)
        return 2
    env = gym.make(name.removeprefix("gym_"), **json.loads(agent.metadata.get("env_kwargs", "{}")))
    returns = play(agent, env, flags.episodes, flags.seed)
    env.close()
    print("rewards", *(f"{total:g}" for total in returns))
    print(f"mean {np.mean(returns):g}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

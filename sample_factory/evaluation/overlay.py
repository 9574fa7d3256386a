"""Text on the pictures of an evaluation: who plays, the episode, its reward so far and the action."""

from collections.abc import Sequence

import numpy as np

from sample_factory.envs.abilities import NamesActions, find_ability
from sample_factory.envs.protocol import MultiAgentEnv
from sample_factory.evaluation.episode_runner import EpisodeResult, EpisodeRunner
from sample_factory.evaluation.video import resize, video_size
from sample_factory.spaces.actions import action_decoder

MAX_AGENTS = 4  # with a line each
# The size of the text, for a picture of this many rows; it grows with the picture.
ROWS = 480
LINE_ROWS = 22
MARGIN = 8
FONT_SCALE = 0.55
WHITE = (255, 255, 255)
SHADE = 3  # the picture behind the text is this many times darker


class Overlay:
    """Draws lines of text at the top left of pictures, which are enlarged so that it can be read."""

    def __init__(self, title: str, env: MultiAgentEnv, agents: Sequence[int]):
        """title: the first line. agents: those that are drawn."""
        self._agents = agents[:MAX_AGENTS]
        self._namer = find_ability(env.env, NamesActions)
        kinds = [env.kinds.of_agent[agent] for agent in self._agents]
        self._decoders = [action_decoder(env.kinds.spaces[kind].action) for kind in kinds]
        self._num_ended = dict.fromkeys(range(env.num_agents), 0)
        self._title = title
        self._lines = [title]

    def update(self, runner: EpisodeRunner, finished: Sequence[EpisodeResult]) -> None:
        """Describes the runner's last step; `finished`: the episodes that ended in it."""
        rewards = {episode.agent: episode.reward for episode in finished}
        self._lines = [self._title]
        for agent, decode in zip(self._agents, self._decoders):
            name = f"agent {agent}  " if len(self._agents) > 1 else ""
            reward = rewards.get(agent, runner.returns[agent])
            self._lines.append(f"{name}episode {self._num_ended[agent] + 1}  reward {reward:.2f}")
            self._lines.append(self._namer.action_text(decode(runner.actions[agent])))
        for agent in rewards:
            self._num_ended[agent] += 1

    def draw(self, picture: np.ndarray) -> np.ndarray:
        """Returns a copy of the picture, at least 480 rows high, with the text."""
        import cv2

        picture = resize(picture, video_size(*picture.shape[:2])).copy()
        scale = picture.shape[0] / ROWS
        row = round(LINE_ROWS * scale)
        margin = round(MARGIN * scale)
        font = (cv2.FONT_HERSHEY_SIMPLEX, FONT_SCALE * scale)
        thickness = max(1, round(scale))
        width = max(cv2.getTextSize(line, *font, thickness)[0][0] for line in self._lines)
        picture[: row * len(self._lines) + margin, : width + 2 * margin] //= SHADE
        for number, line in enumerate(self._lines, start=1):
            cv2.putText(picture, line, (margin, row * number), *font, WHITE, thickness, cv2.LINE_AA)
        return picture

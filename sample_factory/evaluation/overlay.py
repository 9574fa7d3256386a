"""Text on the pictures of an evaluation: who plays, the episode, its reward so far and the action."""

from collections.abc import Sequence

import numpy as np

from sample_factory.envs.abilities import NamesActions, SplitsScreen, find_ability
from sample_factory.envs.protocol import MultiAgentEnv
from sample_factory.evaluation.episode_runner import EpisodeRunner
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.evaluation.results import EpisodeResult
from sample_factory.evaluation.video import resize, video_size
from sample_factory.spaces.actions import action_decoder

MAX_AGENTS = 4  # with text in one picture
# The size of the text in pixels, for a picture of this many rows; it grows with the picture.
ROWS = 480
LINE_ROWS = 22
MARGIN = 8
FONT_SCALE = 0.55
MIN_SCALE = 0.75  # legible in small parts of a split screen too
WHITE = (255, 255, 255)
SHADE = 3  # the picture behind the text is this many times darker


class Overlay:
    """Draws lines of text at the top left of pictures, which are enlarged so that it can be read.

    In a split screen, the lines of each agent are in its part.
    """

    def __init__(
        self, experiment: str, env: MultiAgentEnv, choices: Sequence[PolicyChoice], agents: Sequence[int]
    ):
        """choices: the policy of each agent. agents: those that are drawn."""
        self._grid = find_ability(env.env, SplitsScreen).screen_grid()
        self._is_split = self._grid != (1, 1)
        self._agents = agents if self._is_split else agents[:MAX_AGENTS]
        self._namer = find_ability(env.env, NamesActions)
        kinds = [env.kinds.of_agent[agent] for agent in self._agents]
        self._decoders = [action_decoder(env.kinds.spaces[kind].action) for kind in kinds]
        self._titles = [f"{experiment}: {choices[agent]}" for agent in self._agents]
        self._num_ended = dict.fromkeys(range(env.num_agents), 0)
        self._texts = [[title] for title in self._titles]

    def update(self, runner: EpisodeRunner, finished: Sequence[EpisodeResult]) -> None:
        """Describes the runner's last step; `finished`: the episodes that ended in it."""
        rewards = {episode.agent: episode.reward for episode in finished}
        self._texts = []
        for agent, title, decode in zip(self._agents, self._titles, self._decoders):
            reward = rewards.get(agent, runner.returns[agent])
            result = f"episode {self._num_ended[agent] + 1}  reward {reward:.2f}"
            self._texts.append([title, result, self._namer.action_text(decode(runner.actions[agent]))])
        for agent in rewards:
            self._num_ended[agent] += 1

    def draw(self, picture: np.ndarray) -> np.ndarray:
        """Returns a copy of the picture, at least 480 rows high, with the text."""
        picture = resize(picture, video_size(*picture.shape[:2])).copy()
        if not self._is_split:
            _write(picture, [line for text in self._texts for line in text])
            return picture
        columns, rows = self._grid
        height = picture.shape[0] // rows
        width = picture.shape[1] // columns
        for index, text in enumerate(self._texts):
            top = index // columns * height
            left = index % columns * width
            _write(picture[top : top + height, left : left + width], text)
        return picture


def _write(picture: np.ndarray, lines: Sequence[str]) -> None:
    """Writes lines on the picture, or on a view of a part of one."""
    import cv2

    scale = max(MIN_SCALE, picture.shape[0] / ROWS)
    row = round(LINE_ROWS * scale)
    margin = round(MARGIN * scale)
    font = (cv2.FONT_HERSHEY_SIMPLEX, FONT_SCALE * scale)
    thickness = max(1, round(scale))
    width = max(cv2.getTextSize(line, *font, thickness)[0][0] for line in lines)
    shaded = picture[: row * len(lines) + margin, : width + 2 * margin]
    shaded //= SHADE
    text = np.ascontiguousarray(shaded)  # OpenCV draws on whole arrays only
    for number, line in enumerate(lines, start=1):
        cv2.putText(text, line, (margin, row * number), *font, WHITE, thickness, cv2.LINE_AA)
    shaded[:] = text

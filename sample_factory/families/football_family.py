"""Google Research Football by the names of its scenarios, through EnvPool: `football_<scenario>`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.config.flags import flag
from sample_factory.envs import family_flags
from sample_factory.envs.abilities import NamesActions, StepsInBackground
from sample_factory.envs.env_family import FamilyParts
from sample_factory.envs.protocol import EnvConfig
from sample_factory.families.envpool_engine import EnvPoolFlags, make_envpool, options_of_user

PREFIX = "football_"
SCENARIOS = """
    11_vs_11_competition 11_vs_11_easy_stochastic 11_vs_11_hard_stochastic 11_vs_11_kaggle
    11_vs_11_stochastic 1_vs_1_easy 5_vs_5 academy_3_vs_1_with_keeper academy_corner
    academy_counterattack_easy academy_counterattack_hard academy_empty_goal academy_empty_goal_close
    academy_pass_and_shoot_with_keeper academy_run_pass_and_shoot_with_keeper academy_run_to_score
    academy_run_to_score_with_keeper academy_single_goal_versus_lazy
"""
FOOTBALL_ENVS = tuple(PREFIX + scenario for scenario in SCENARIOS.split())
GOALS = "scoring"
GOALS_AND_CHECKPOINTS = "scoring,checkpoints"

HEIGHT = 72  # of the mini map, in pixels
WIDTH = 96
OUR_TEAM, OTHER_TEAM, BALL, CONTROLLED_PLAYER = range(4)  # channels of the mini map
GOAL_LINE = 1.0  # x of the opponent's goal; the pitch is from -1 to 1
TOUCH_LINE = 1 / 2.25  # largest y of the mini map
NUM_CHECKPOINTS = 10
CHECKPOINT_REWARD = 0.1
FIRST_CHECKPOINT = 0.99  # distance from the goal
LAST_CHECKPOINT = 0.19
PIXEL_SIDE = 8  # of a pixel of the mini map in a picture
GRASS = (40, 110, 50)
COLORS = {OTHER_TEAM: (220, 60, 60), OUR_TEAM: (250, 210, 60), CONTROLLED_PLAYER: (120, 200, 255)}
WHITE = (255, 255, 255)
DECISIONS_PER_SECOND = 10
_ACTIONS = (
    "idle, left, top left, top, top right, right, bottom right, bottom, bottom left, long pass, high "
    "pass, short pass, shot, sprint, release direction, release sprint, sliding, dribble, release dribble"
)
ACTIONS = _ACTIONS.split(", ")

StepReturn = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


@dataclass(frozen=True)
class FootballFlags(EnvPoolFlags, family_flags.EnvKwargsFlags):
    """Flags of football."""

    vector_env_copies: int = family_flags.vector_env_copies_flag(16)
    football_rewards: str = flag(
        GOALS_AND_CHECKPOINTS,
        "scoring: 1 for a goal, -1 for one of the other team; scoring,checkpoints: also 0.1 for each of ten "
        "distances from the goal that the ball is carried to for the first time in a match; the true "
        "objective is the difference of goals in both cases",
        choices=(GOALS, GOALS_AND_CHECKPOINTS),
    )


def make_football_env(
    full_env_name: str, cfg: Any, env_config: EnvConfig, render_mode: str | None = None
) -> "FootballMatches":
    """Makes --vector_env_copies matches of the scenario after `football_`, as one vector env."""
    family_flags.refuse_frameskip(
        cfg,
        "in football, an action lasts 10 steps of the simulator; "
        """use --env_kwargs='{"physics_steps_per_frame": 20}'""",
    )
    task_id = f"gfootball/{full_env_name.removeprefix(PREFIX)}-v1"
    # EnvPool cannot draw football; FootballMatches draws the mini map.
    pool = make_envpool(task_id, cfg, env_config, **options_of_user(cfg))
    return FootballMatches(pool, cfg.football_rewards == GOALS_AND_CHECKPOINTS, render_mode)


def football_defaults(env_name: str) -> Mapping[str, Any]:
    """Returns flags that follow the published PPO baseline (Kurach et al. 2020, `repro_checkpoint_easy.sh`).

    Where the baseline stacks four mini maps, a recurrent core remembers the directions of players and ball.
    Inputs are not normalized by statistics: pixels of the mini map are 255 or 0, and nearly always 0.
    """
    return {
        "num_workers": 1,
        "num_envs_per_worker": 2,
        "normalize_input": False,
        "obs_scale": 255.0,
        "async_rl": False,
        "with_vtrace": False,
        "gamma": 0.993,
        "gae_lambda": 0.95,
        "learning_rate": 3.43e-4,
        "ppo_clip_ratio": 0.08,
        "exploration_loss_coeff": 0.003,
        "max_grad_norm": 0.64,
        "rollout": 128,
        "batch_size": 512,
        "num_batches_per_iteration": 8,
        "ppo_epochs": 2,
    }


class FootballMatches(StepsInBackground, gym.vector.VectorWrapper, NamesActions):
    """Matches of Google Research Football in EnvPool.

    The observation is the mini map, [72, 96, 4] uint8: our team, the other team, the ball, the controlled
    player. The reward is 1 for a goal of ours and -1 for a goal of the other team, plus the rewards of
    `Checkpoints` if they are on. The true objective of a match is its difference of goals.
    """

    env: Any

    def __init__(self, env: Any, rewards_checkpoints: bool, render_mode: str | None):
        """Wraps an EnvPoolVectorEnv. rewards_checkpoints: whether to add the rewards of `Checkpoints`."""
        super().__init__(env)
        self.metadata = {**env.metadata, "render_modes": ["rgb_array"], "render_fps": DECISIONS_PER_SECOND}
        self._checkpoints = Checkpoints(env.num_envs) if rewards_checkpoints else None
        self._draws = render_mode is not None
        self._drawn = np.zeros((HEIGHT, WIDTH, 4), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        self._drawn = observations[0]
        return observations, infos

    def send(self, actions: np.ndarray) -> None:
        self.env.send(actions)

    def receive(self) -> StepReturn:
        observations, rewards, terminated, truncated, infos = self.env.receive()
        goals, goals_conceded = infos["score"].T
        infos["true_objective"] = goals - goals_conceded
        infos["episode_extra_stats"] = {"goals": goals, "goals_conceded": goals_conceded}
        if self._checkpoints is not None:
            rewards = rewards + self._checkpoints.rewards(observations, rewards, infos)
        self._drawn = observations[0]
        return observations, rewards, terminated, truncated, infos

    def render(self) -> tuple[np.ndarray] | None:
        """Returns the picture of the first match, drawn by `draw`, as a tuple of one picture; None without a
        render_mode."""
        return (draw(self._drawn),) if self._draws else None

    def action_text(self, action: Any) -> str:
        """Returns an action in words, e.g. "short pass"."""
        return ACTIONS[int(action)]


class Checkpoints:
    """Rewards a team for carrying the ball to the opponent's goal: 0.1 for each of ten distances when it is
    reached for the first time in a match; a goal pays the rest.

    Kurach et al. 2020, Google Research Football, section 3.2. There, the player with the ball has to be the
    controlled player; EnvPool reports only which team has the ball, and control follows the ball. Positions
    are read from the mini map.
    """

    def __init__(self, num_matches: int):
        self._num_reached = np.zeros(num_matches, np.int64)
        self._match_number = np.zeros(num_matches, np.int64)

    def rewards(
        self, observations: np.ndarray, rewards: np.ndarray, infos: dict[str, np.ndarray]
    ) -> np.ndarray:
        """Returns the rewards for distances reached in a step, [num_matches], to be added to `rewards`.

        observations: [num_matches, 72, 96, 4]. rewards: for goals, [num_matches]. infos: EnvPool's.
        """
        self._num_reached[infos["episode_number"] != self._match_number] = 0
        self._match_number = infos["episode_number"].astype(np.int64)
        spacing = (FIRST_CHECKPOINT - LAST_CHECKPOINT) / (NUM_CHECKPOINTS - 1)
        pixel = observations[..., BALL].reshape(len(observations), -1).argmax(1)
        row, column = np.divmod(pixel, WIDTH)
        x = (2 * (column + 0.5) / WIDTH - 1) * GOAL_LINE
        y = (2 * (row + 0.5) / HEIGHT - 1) * TOUCH_LINE
        distance = np.hypot(GOAL_LINE - x, y)
        num_passed = np.floor((FIRST_CHECKPOINT - distance) / spacing).astype(int) + 1
        num_passed = num_passed.clip(0, NUM_CHECKPOINTS)
        num_passed[infos["ball_owned_team"] != OUR_TEAM] = 0
        num_passed[rewards > 0] = NUM_CHECKPOINTS
        before = self._num_reached
        self._num_reached = np.maximum(before, num_passed)
        return (CHECKPOINT_REWARD * (self._num_reached - before)).astype(np.float32)


def draw(mini_map: np.ndarray) -> np.ndarray:
    """Draws a mini map, [72, 96, 4] uint8, as a picture, [576, 768, 3] uint8: our team yellow, the controlled
    player blue."""
    picture: np.ndarray = np.full((HEIGHT, WIDTH, 3), GRASS, np.uint8)
    goal = slice(round(HEIGHT * 0.45), round(HEIGHT * 0.55))
    picture[goal, [0, -1]] = WHITE
    picture[:, WIDTH // 2] = np.minimum(np.array(GRASS) + 30, 255)
    for channel, color in COLORS.items():
        picture[mini_map[..., channel] > 0] = color
    picture = picture.repeat(PIXEL_SIDE, 0).repeat(PIXEL_SIDE, 1)
    for row, column in np.argwhere(mini_map[..., BALL]):
        # Smaller than a player, who would otherwise be hidden by the ball at his feet.
        top, left = row * PIXEL_SIDE + PIXEL_SIDE // 4, column * PIXEL_SIDE + PIXEL_SIDE // 4
        picture[top : top + PIXEL_SIDE // 2, left : left + PIXEL_SIDE // 2] = WHITE
    return picture


FAMILY = FamilyParts(make_football_env, FootballFlags, football_defaults, FOOTBALL_ENVS)

"""`record`: plays a checkpoint in parallel, as `eval` does, and writes the episodes as a Minari data set."""

import collections
import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from sample_factory.config.command import FILMS, OF_PLAYING_IN_PARALLEL, Command, counts_episodes
from sample_factory.config.config import Config
from sample_factory.config.flags import ConfigError, flag
from sample_factory.envs.env_registry import resolve_family
from sample_factory.envs.headless import has_display, prepare_mujoco
from sample_factory.envs.protocol import EnvConfig, MultiAgentEnv
from sample_factory.evaluation.env_choice import explains_other_env, with_eval_frameskip
from sample_factory.evaluation.measurement import Measurement, MeasurementPlan, plan_measurement
from sample_factory.evaluation.policy_choice import chosen_policies, find_checkpoint
from sample_factory.evaluation.results import EpisodeResult, Progress
from sample_factory.evaluation.screen import DEFAULT_FPS
from sample_factory.evaluation.video import VideoWriter
from sample_factory.imitation import check_data_set
from sample_factory.imitation.games import ONLY_KEY, SCREEN, UNFINISHED, Episode, EpisodeStore, GameWriter
from sample_factory.imitation.recorded_env import RecordedEnv
from sample_factory.launch.checks import check_machine, probe_env
from sample_factory.launch.shared_imports import shared_imports
from sample_factory.runtime import cpu
from sample_factory.runtime.log import log
from sample_factory.runtime.supervisor import StopSignals
from sample_factory.spaces.observations import image_layout, is_image


@dataclass(frozen=True)
class RecordFlags:
    """Recording games of a policy. Declares the flags that only the command `record` has."""

    episodes: int = flag(100, "number of episodes, in each level", between=(1, 10_000_000))
    out: str | None = flag(None, "new folder for the Minari data set", metavar="FOLDER")
    screens: bool = flag(
        False, "record also what the env draws for people, as the info `screen` of each step"
    )
    video_episodes: int = flag(3, "episodes in the video, video.mp4 in the folder; 0: no video", at_least=0)


class Recorder:
    """In a rollout worker: wraps envs to record their episodes. An episode is stored before its end is
    reported."""

    def __init__(self, folder: Path, has_screens: bool):
        """Prepares to record into a data set's folder. has_screens: whether to record also what the env
        draws."""
        self._folder = folder
        self._has_screens = has_screens
        self._store: EpisodeStore | None = None
        # By env and agent; also of envs that are rebuilt, and go on with the next episode.
        self._num_episodes: collections.Counter[tuple[int, int]] = collections.Counter()

    def __call__(self, env: MultiAgentEnv, config: EnvConfig) -> MultiAgentEnv:
        """Wraps an env so that its episodes are recorded."""
        store = self._store = self._store or EpisodeStore(self._folder, env.kinds.spaces[0])

        def put(agent: int, episode: Episode) -> None:
            place = config.env_id, agent
            store.put(episode_name(*place, self._num_episodes[place]), episode)
            self._num_episodes[place] += 1

        return RecordedEnv(env, put, self._folder / UNFINISHED if self._has_screens else None)


def episode_name(env: int, agent: int, number: int) -> str:
    """Returns the name under which an episode is stored. number: index among the episodes of the agent."""
    return f"{env}_{agent}_{number}"


def record(config: Config) -> None:
    """Runs the command `record`: plays, writes the data set and the video, and prints the results. A signal
    ends the recording early; the data set keeps the complete episodes, also after a failure. Raises
    ConfigError for a wrong flag and an env that cannot be recorded, CheckpointError for an unusable
    checkpoint, NotWritten for a folder that cannot be written, and Failure when an env or a process fails."""
    flags: RecordFlags = config.extra["record"]
    folder = _check(config, flags)
    config = replace(config, evaluation=replace(config.evaluation, eval_episodes=flags.episodes))
    cpu.raise_open_files_limit()
    with StopSignals() as signals, shared_imports(config):
        plan = _plan(config, flags, folder)
        info = plan.session.info
        about = {"algorithm_name": config.run.algo, "env": config.env_name, "frameskip": info.frameskip}
        writer = GameWriter(folder, info.kinds.spaces[0], about)

        def add(result: EpisodeResult, number: int) -> None:
            name = episode_name(result.env, result.agent, number)
            writer.add(
                name, env=result.env, agent=result.agent, policy_version=measurement.session.versions[0]
            )

        try:
            with explains_other_env(config, warns=False):
                measurement = Measurement(plan, Progress(flags.episodes), add)
            evaluation = measurement.play(signals)
        finally:
            writer.close()
            log.info("%d episodes are in %s", writer.num_episodes, folder)
    if writer.num_episodes:
        defaults = resolve_family(config.env_name).defaults
        fps = config.evaluation.fps or defaults.get("fps") or info.render_fps or DEFAULT_FPS
        video = write_video(folder, flags.video_episodes, fps / info.frameskip)
        evaluation = evaluation._replace(video=video)
    print(evaluation.summary())


def _check(config: Config, flags: RecordFlags) -> Path:
    """Checks the flags before anything is played, and returns the folder of the data set. Raises ConfigError
    if --out is missing or exists, minari, pyarrow or Pillow is missing, or the flags choose no or several
    checkpoints."""
    if flags.out is None:
        raise ConfigError("--out=FOLDER is missing: the folder of the data set")
    check_data_set("out", flags.out)
    chosen = chosen_policies(config)
    if len(chosen) > 1:
        raise ConfigError(f"{len(chosen)} checkpoints are chosen; a data set has the games of one")
    find_checkpoint(config, chosen[0])  # raises
    return Path(flags.out).expanduser().absolute()


def _plan(config: Config, flags: RecordFlags, folder: Path) -> MeasurementPlan:
    """Returns the plan of an evaluation in which the episodes are recorded. Raises ConfigError for an env
    that cannot be played or recorded, and Failure if a user's network cannot be made."""
    if flags.screens and not has_display():
        prepare_mujoco()
    config, family = with_eval_frameskip(config, resolve_family(config.env_name))
    family = replace(family, render_mode="rgb_array" if flags.screens else None)
    (choice,) = chosen_policies(config)
    with explains_other_env(config):
        check_machine(config)
        info = probe_env(config, replace(family, render_mode=None))
        plan = plan_measurement(config, family, info, choice, [Recorder(folder, flags.screens)])
    kinds = info.kinds
    if len(kinds.spaces) > 1:
        raise ConfigError("the agents of the env have different spaces; a data set has one kind of agents")
    if flags.screens and len(kinds.of_agent) > 1:
        raise ConfigError("--screens: the env has several agents; only an env of one agent is drawn")
    return plan


def write_video(folder: Path, num_episodes: int, pictures_per_second: float) -> Path | None:
    """Writes the first episodes of a data set as video.mp4 in its folder: the recorded screens, or else the
    images that the policy saw. Returns the path of the video; None if there are neither screens nor images.
    Raises VideoError if the video cannot be written."""
    import minari

    dataset = minari.MinariDataset(folder / "data")
    video = VideoWriter(folder / "video.mp4", pictures_per_second)
    whole = dataset.observation_space
    boxes = whole.spaces if isinstance(whole, gym.spaces.Dict) else {ONLY_KEY: whole}
    images = [(key, factor) for key, box in boxes.items() if (factor := _factor_of_bytes(box))]
    for index in range(min(num_episodes, len(dataset))):
        episode = dataset[index]
        if SCREEN in episode.infos:
            pictures = iter(episode.infos[SCREEN])
        elif images:
            key, factor = images[0]
            seen = (
                episode.observations[key] if isinstance(episode.observations, dict) else episode.observations
            )
            pictures = (rgb(np.clip(np.rint(image * factor), 0, 255).astype(np.uint8)) for image in seen)
        else:
            break
        for picture in itertools.islice(pictures, len(episode)):
            video.write(picture)
    return video.close()


def _factor_of_bytes(space: gym.Space[Any]) -> float | None:
    """Returns the factor that scales an image observation to 0..255; None if it is no image, or its bounds do
    not say which number is white."""
    if not isinstance(space, gym.spaces.Box) or not 2 <= len(space.shape) <= 4:
        return None
    if space.dtype == np.uint8:
        return 1.0
    is_known = is_image(space) and not space.low.any() and space.high.max() in (1, 255)
    return 255 / float(space.high.max()) if is_known else None


def rgb(image: np.ndarray) -> np.ndarray:
    """Converts an image observation to a picture, [height, width, 3] uint8; a stack of images, to its newest
    image."""
    layout = image_layout(image.shape)
    if layout.is_stack:
        image = image[-1]
    if layout.is_plane:
        image = image[..., None]
    elif not layout.is_hwc:
        image = image.transpose(1, 2, 0)
    newest = image[..., -3:] if image.shape[-1] % 3 == 0 else image[..., -1:]
    return np.ascontiguousarray(np.broadcast_to(newest, (*newest.shape[:2], 3)))


RECORD = Command(
    name="record",
    experiment="saved",
    description="Plays episodes with a checkpoint, as eval does, and writes what it saw, did and got as a "
    "Minari data set, for offline RL, world models and debugging. Ctrl+C keeps the episodes so far.",
    examples="""
    # Record the latest checkpoint.
    --experiment=basic --episodes=100 --out=games
    # With the pictures that a person would see, in the data set and in the video.
    --experiment=basic --episodes=20 --out=games --screens=True
    # The best checkpoint's most likely actions, without a video.
    --experiment=basic --checkpoint=best --eval_deterministic=True --out=games --video_episodes=0
    """,
    run=record,
    sections={"record": RecordFlags},
    reads=OF_PLAYING_IN_PARALLEL | {"fps", "env_both_ends"},
    instead={
        **counts_episodes("episodes"),
        **{name: text for name, text in FILMS.items() if name != "fps"},
        "save_video": "--video_episodes=N writes a video",
    },
)

"""How a command is declared: the words of its help, its flags, what it reads, and its function.

A command is declared beside its code, and listed in `sample_factory/__main__.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from sample_factory.config.sections import TRAINING_SECTIONS


class Command(NamedTuple):
    """A command of this package: `python -m sample_factory NAME`.

    description: what it does, in a few sentences.
    examples: pairs of lines: a comment, and the arguments of a command to copy.
    run: the function, or its "module:attribute", which is imported once the flags are right. Gets the Config,
        or the command's own section if it takes no flags of an experiment; returns an exit code, None for 0.
    experiment: "": it takes only its own flags, which are one section. "new": also the flags of an
        experiment, and reads no cfg.json. "resumed": as "new", but reads the cfg.json of an experiment that
        exists. "saved": the experiment must exist; its cfg.json has the env, so --env may be left out.
    sections: name -> section of the flags that only this command has.
    common: names of the flags that its short help shows.
    defaults: flag -> default in this command, in place of the default of the flag and of the env.
    reads: names of the sections and flags that have an effect in it; its own sections and the flags of the
        env always have. None: nothing is said about flags without effect.
    ignores: names of flags in the sections of `reads` that have no effect.
    instead: flag -> what to use in place of it; to set this flag is an error in the command.
    """

    name: str
    description: str = ""
    examples: str = ""
    run: Callable[[Any], int | None] | str = ""
    experiment: Literal["", "new", "resumed", "saved"] = ""
    sections: Mapping[str, type] = {}
    common: str = ""
    defaults: Mapping[str, Any] = {}
    reads: frozenset[str] | None = None
    ignores: frozenset[str] = frozenset()
    instead: Mapping[str, str] = {}

    def uses(self, flag: str, section: str | None) -> bool:
        """Returns whether a flag can have an effect in this command.

        section: name of the section that has the flag; None for a flag that no section has.
        """
        if self.reads is None:
            return True
        if flag in self.instead or flag in self.ignores:
            return False
        return section not in TRAINING_SECTIONS or not self.reads.isdisjoint((section, flag))

    def but(self, *, reads: str = "", ignores: str = "", **fields: Any) -> "Command":
        """Returns a copy with other fields. reads: names, separated by spaces, that are added to `reads` and
        removed from `ignores`. ignores: names that are added to `ignores` and removed from `reads`."""
        added, left_out = frozenset(reads.split()), frozenset(ignores.split())
        has = self.reads or frozenset()
        return self._replace(reads=has - left_out | added, ignores=self.ignores - added | left_out, **fields)


# (name, explanation) of the families of envs; the registry of envs adds those that it knows.
ENV_FAMILIES = [
    (
        "your own",
        'in a script: register_env("my_", make_env), then sample_factory.train.main(); see '
        "sample_factory/envs/README.md",
    )
]
_READS_EXPERIMENT = "env experiment experiments_root train_dir cfg trust_code "
# Of the network, everything that decides which weights it has and what it computes from them.
_READS_NETWORK = "model normalize_returns "
_IGNORES = (
    "policy_initialization policy_init_gain initial_stddev centralized_critic centralized_critic_sees "
    "env_both_ends level_choice"
)
_READS_CHOICE = "eval_deterministic continuous_actions_sample eval_env_frameskip "
FILMS = dict.fromkeys(
    ("save_video", "video_frames", "video_name", "overlay", "fps", "render_action_repeat"),
    "sample_factory.enjoy draws and writes videos",
)


def counts_episodes(flag: str) -> dict[str, str]:
    """Returns `Command.instead` for a command in which `flag` sets the number of episodes: the other flags
    for a number of episodes or frames -> the hint to write `flag`."""
    names = ("eval_episodes", "max_num_episodes", "max_num_frames")
    return {name: f"write --{flag}=N" for name in names if name != flag}


# Bases of commands. A command is made from one of them by `Command.but`, with what differs.
# For commands that begin an experiment, or need none:
NEW = Command("").but(experiment="new", reads=_READS_EXPERIMENT)
# For commands that play a checkpoint.
PLAYS = Command("").but(
    experiment="saved",
    common="experiment train_dir env policy_index checkpoint load_checkpoint_kind seed",
    reads=f"{_READS_EXPERIMENT}{_READS_NETWORK}env_frameskip env_framestack load_checkpoint_kind "
    "policy_index checkpoint seed",
    ignores=_IGNORES,
)
# For commands with flags for how actions are chosen.
CHOOSES = PLAYS.but(
    common="experiment train_dir env policy_index checkpoint load_checkpoint_kind eval_deterministic device "
    "seed",
    reads=f"{_READS_CHOICE}device",
)
# For commands that play in many envs, in worker processes without learners.
PLAYS_IN_PARALLEL = CHOOSES.but(
    common="experiment train_dir env policy_index checkpoint load_checkpoint_kind eval_episodes "
    "eval_deterministic eval_env_frameskip num_workers num_envs_per_worker device seed",
    reads="precision cuda_graphs rollout heartbeat_reporting_interval serial_mode queue num_workers "
    "num_envs_per_worker worker_num_splits policy_workers_per_policy inline_samplers "
    "reset_timeout_seconds actor_worker_gpus set_workers_cpu_affinity "
    "force_envs_single_thread default_niceness",
)
# The command whose flags the shared sections are; its function is in training/command.py.
TRAIN = Command("train").but(
    description="Trains agents. Checkpoints, curves (for TensorBoard) and the log of a run are written to "
    "train_dir/NAME. Ctrl+C saves and stops; the same command resumes the run.",
    examples="""
    # Doom: shoot one monster. Two to four minutes on two cores.
    --env=doom_basic --experiment=basic --num_workers=2 --num_envs_per_worker=8 --batch_size=512 \
      --train_for_env_steps=450_000
    # Gymnasium: balance a pole. Half a minute.
    --env=gym_CartPole-v1 --experiment=cartpole --num_workers=2 --num_envs_per_worker=20 \
      --train_for_env_steps=400_000
    # Resume a run: its flags are saved in its folder.
    --experiment=basic
    """,
    experiment="resumed",
    common="env experiment train_dir train_for_env_steps num_workers num_envs_per_worker batch_size "
    "learning_rate device seed",
    reads="run sampling learning model env monitoring population selfplay cluster "
    "eval_episodes eval_deterministic continuous_actions_sample eval_env_frameskip",
)
# What the flags in --eval_flags are for.
EVAL_FLAGS = Command("evaluations during training").but(
    reads=f"{_READS_EXPERIMENT}{_READS_NETWORK}{_READS_CHOICE}env_frameskip env_framestack seed rollout "
    "num_envs_per_worker worker_num_splits eval_episodes",
    ignores=_IGNORES,
    instead={**counts_episodes("eval_episodes"), **FILMS},
)

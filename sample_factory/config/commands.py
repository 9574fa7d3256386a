"""The commands of this package, and the texts of their help besides the flags."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sample_factory.config.sections import TRAINING_SECTIONS


class Command(NamedTuple):
    """A command of this package: `python -m sample_factory.<module>`.

    purpose: one phrase for the list of commands.
    description: what it does, in a few sentences.
    examples: pairs of lines: a comment, and the arguments of a command to copy.
    usage: the arguments that are nearly always given.
    common: names of the flags that its short help shows.
    envs: (name, explanation) of the envs that it works with.
    section: the section of `Config` that belongs to this command, if there is one.
    reads: names of the sections and flags that have an effect in it, and names of flags with a minus for
        exceptions; its own sections and the flags of the env always have. None: nothing is said about flags
        without effect.
    instead: flag -> what to write, for flags that another one has taken the place of in this command.
    """

    module: str
    purpose: str
    description: str
    examples: str
    usage: str = "--experiment=NAME [--flag=value ...]"
    common: str = ""
    envs: Sequence[tuple[str, str]] = ()
    section: str | None = None
    reads: str | None = None
    instead: Mapping[str, str] = {}

    def uses(self, flag: str, section: str | None) -> bool:
        """Returns whether a flag can have an effect in this command.

        section: name of the section that has the flag; None for a flag that no section has.
        """
        if self.reads is None:
            return True
        words = self.reads.split()
        if flag in self.instead or f"-{flag}" in words:
            return False
        return section not in TRAINING_SECTIONS or section in words or flag in words

    @property
    def name(self) -> str:
        """The name after `python -m sample_factory`."""
        return self.module.rpartition(".")[2]


# (name, explanation) of the families of envs; the registry of envs adds those that it knows.
ENV_FAMILIES = [
    (
        "your own",
        'in a script: register_env("my_", make_env), then sample_factory.train.main(); see '
        "sample_factory/envs/README.md",
    )
]
_EVALUATED_ENVS = (("any", "the env that the experiment was trained in; --env can be left out"),)
_EXPERIMENT = "env experiment experiments_root train_dir cfg trust_code "
# Of the network, everything that decides which weights it has and what it computes from them.
_NETWORK = (
    "model normalize_returns -policy_initialization -policy_init_gain -initial_stddev -episodic_slots "
    "-centralized_critic -centralized_critic_sees "
)
# A checkpoint in an env of this process.
_PLAYS = (
    _EXPERIMENT + _NETWORK + "env_frameskip env_framestack load_checkpoint_kind policy_index checkpoint seed "
)
_CHOOSES = "eval_deterministic continuous_actions_sample eval_env_frameskip "
# Many envs in worker processes, without learners.
_PLAYS_IN_PARALLEL = (
    _PLAYS + _CHOOSES + "device precision cuda_graphs rollout heartbeat_reporting_interval serial_mode queue "
    "num_workers num_envs_per_worker worker_num_splits policy_workers_per_policy inline_samplers "
    "traj_buffers_excess_ratio reset_timeout_seconds actor_worker_gpus set_workers_cpu_affinity "
    "force_envs_single_thread default_niceness "
)
_FILMS = dict.fromkeys(
    ("save_video", "video_frames", "video_name", "overlay", "fps", "render_action_repeat"),
    "sample_factory.enjoy draws and writes videos",
)


def _episodes(flag: str) -> dict[str, str]:
    """Returns `Command.instead` of a command whose number of episodes is another flag."""
    names = ("eval_episodes", "max_num_episodes", "max_num_frames")
    return {name: f"write --{flag}=N" for name in names if name != flag}


_EVAL_FLAGS = (
    "experiment train_dir env policy_index checkpoint load_checkpoint_kind eval_episodes eval_deterministic "
    "eval_env_frameskip num_workers num_envs_per_worker device seed"
)

TRAIN = Command(
    module="train",
    purpose="train agents; the same command resumes a run that was stopped",
    usage="--env=ENV --experiment=NAME [--flag=value ...]",
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
    common="env experiment train_dir train_for_env_steps num_workers num_envs_per_worker batch_size "
    "learning_rate device seed",
    envs=ENV_FAMILIES,
    reads="run sampling learning model env monitoring population selfplay cluster "
    "eval_episodes eval_deterministic continuous_actions_sample eval_env_frameskip",
)
ENJOY = Command(
    module="enjoy",
    purpose="watch a trained policy, or write a video of it",
    description="Shows a trained policy in a window and prints its scores, also while the training runs.",
    examples="""
    # Watch the latest checkpoint in a window.
    --experiment=basic
    # Write a video of three episodes; needs no display.
    --experiment=basic --no_render --save_video --max_num_episodes=3
    # Measure the best checkpoint over 100 episodes.
    --experiment=basic --no_render --load_checkpoint_kind=best --max_num_episodes=100
    """,
    common="experiment train_dir env load_checkpoint_kind device seed",
    envs=_EVALUATED_ENVS,
    section="evaluation",
    reads=_PLAYS + _CHOOSES + "device evaluation",
    instead={"eval_episodes": "write --max_num_episodes=N"},
)
EVAL = Command(
    module="eval",
    purpose="measure checkpoints over many episodes, with many envs in parallel",
    description="Plays episodes with one or several checkpoints, in as many envs and processes as the "
    "training has, and reports mean, spread and confidence interval. Ctrl+C prints the results so far.",
    examples="""
    # Measure the latest checkpoint.
    --experiment=basic --eval_episodes=1000
    # Measure the best checkpoint, with all results in files.
    --experiment=basic --checkpoint=best --json=eval.json --csv=eval.csv
    # The most likely actions in place of random ones, in four processes.
    --experiment=basic --eval_deterministic=True --num_workers=4
    """,
    common=_EVAL_FLAGS,
    envs=_EVALUATED_ENVS,
    reads=_PLAYS_IN_PARALLEL + "eval_episodes",
    instead={**_episodes("eval_episodes"), **_FILMS},
)
RECORD = Command(
    module="record",
    purpose="record games of a trained policy as a Minari data set",
    usage="--experiment=NAME --out=FOLDER [--flag=value ...]",
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
    common="experiment train_dir env policy_index checkpoint load_checkpoint_kind eval_deterministic "
    "num_workers num_envs_per_worker device seed",
    envs=_EVALUATED_ENVS,
    reads=_PLAYS_IN_PARALLEL + "fps",
    instead={
        **_episodes("episodes"),
        **{name: text for name, text in _FILMS.items() if name != "fps"},
        "save_video": "--video_episodes=N writes a video",
    },
)
EXPORT = Command(
    module="export",
    purpose="write a trained policy as an ONNX file, which plays without this package and torch",
    description="Writes a trained policy, with its normalisation of observations and its recurrent state, as "
    "an ONNX file, and compares it with the trained one in episodes of the env.",
    examples="""
    # Export the latest checkpoint.
    --experiment=basic --export_path=basic.onnx
    # Export the best checkpoint of the second policy, with its values.
    --experiment=basic --policy_index=1 --load_checkpoint_kind=best --export_value=True
    # Compare both policies for longer.
    --experiment=basic --export_check_steps=5000
    """,
    common="experiment train_dir env policy_index checkpoint load_checkpoint_kind seed",
    envs=_EVALUATED_ENVS,
    reads=_PLAYS,
    instead={**_episodes("export_check_steps"), **_FILMS},
)
MATCH = Command(
    module="match",
    purpose="let two policies play against each other, and report which one is better",
    usage="--experiment=NAME --opponent_experiment=OTHER [--flag=value ...]",
    description="Plays matches between two policies in an env with two teams, and reports the win rate with "
    "its confidence interval.",
    examples="""
    # Two experiments against each other.
    --experiment=new --opponent_experiment=old --num_matches=200
    # The latest checkpoint of a policy against an earlier one.
    --experiment=duel --opponent_checkpoint=milestone:12345
    # A policy against a bot of the env.
    --experiment=generals --opponent_player=expander
    """,
    common="experiment train_dir env policy_index checkpoint load_checkpoint_kind eval_deterministic device "
    "seed",
    envs=_EVALUATED_ENVS,
    reads=_PLAYS + _CHOOSES + "device",
    instead={
        **_episodes("num_matches"),
        **_FILMS,
        "save_video": "a match is not drawn; sample_factory.enjoy shows several policies",
        "vector_env_copies": "a match has one copy of the env",
    },
)
IMITATE = Command(
    module="imitate",
    purpose="train a policy to play like an env's bots, or as in recorded games, as a start for training",
    usage="--env=ENV --experiment=NAME [--flag=value ...]",
    description="Records games of an env's scripted players, or reads a Minari data set, and trains a policy "
    "to choose the same actions. `train --transfer_from=NAME` then starts with its weights.",
    examples="""
    # Imitate a bot of Generals, then train by self-play from there.
    --env=generals_8x8 --experiment=clone --teachers=expander
    # Keep the games, to train other networks on them.
    --env=generals_8x8 --experiment=clone --save_games=games
    # Imitate recorded games.
    --env=generals_8x8 --experiment=other --games=games
    """,
    common="env experiment train_dir batch_size learning_rate device seed",
    envs=(("generals_NAME", "Generals, e.g. generals_8x8"), ("any", "with --games=FOLDER")),
    reads=_EXPERIMENT + "restart_behavior algo device compile seed learner_main_loop_num_cores rollout "
    "recurrence batch_size gamma reward_scale reward_clip normalize_returns value_loss_coeff use_cpc "
    "cpc_forward_steps optimizer learning_rate adam_eps adam_beta1 adam_beta2 rmsprop_alpha rmsprop_eps "
    "max_grad_norm model -centralized_critic_sees env_frameskip env_framestack "
    "keep_checkpoints log_to_file",
    instead={
        "centralized_critic": "each recorded episode is of one agent; use it with sample_factory.train",
        "train_for_env_steps": "write --imitate_epochs=N",
        "train_for_seconds": "write --imitate_epochs=N",
        "ppo_epochs": "write --imitate_epochs=N",
    },
)
PLAY_DOOM = Command(
    module="play_doom",
    purpose="play Doom yourself, alone or in a match with trained agents",
    usage="--env=doom_NAME [--flag=value ...]",
    description="Opens a window in which a human plays Doom.",
    examples="""
    # Play alone.
    --env=doom_basic
    # Play against the engine's bots.
    --env=doom_duel_bots --timelimit=2
    # Join a match that `enjoy --num_humans=1` has opened; it prints the address.
    --env=doom_duel --join=127.0.0.1:5029
    """,
    common="env seed",
    envs=(("doom_NAME", "Doom, e.g. doom_basic, doom_duel_bots; --env=doom lists all of them"),),
    reads=_EXPERIMENT + "seed env_frameskip -num_agents -num_humans",
)
DUMMY_SAMPLER = Command(
    module="dummy_sampler",
    purpose="step envs with random actions, and report the speed",
    usage="--env=ENV [--flag=value ...]",
    description="Steps envs with random actions on every core, without a network. The speed is the upper "
    "bound for training.",
    examples="""
    # How fast is Doom on this machine? Half a minute.
    --env=doom_benchmark --num_envs_per_worker=16 --timeout_seconds=30
    # How fast is a Gymnasium env? Ten seconds.
    --env=gym_CartPole-v1 --timeout_seconds=10
    # On a single core.
    --env=doom_battle --num_workers=1 --timeout_seconds=10
    """,
    common="env num_workers num_envs_per_worker env_frameskip seed",
    envs=ENV_FAMILIES,
    reads=_EXPERIMENT + "seed env_frameskip env_framestack num_workers num_envs_per_worker "
    "reset_timeout_seconds set_workers_cpu_affinity force_envs_single_thread default_niceness "
    "status_interval figures_file",
    instead={
        "train_for_env_steps": "write --sample_env_frames=N",
        "train_for_seconds": "write --timeout_seconds=N",
        "actor_worker_gpus": "write --sampler_worker_gpus",
    },
)
BENCHMARK = Command(
    module="benchmark",
    purpose="measure the speed of simulation, sampling and training, and advise which flag to change",
    usage="--env=ENV [--flag=value ...]",
    description="Measures simulation, sampling and training one after the other, a minute each, and reports "
    "what limits the speed. It sets the flags that decide when training stops and where it writes; it changes"
    " no experiment.",
    examples="""
    # Measure the flags that a run will have.
    --env=doom_battle --num_envs_per_worker=16
    # Write all figures to a file, and a chart.
    --env=gym_CartPole-v1 --seconds=20 --json=speed.json --chart=speed.png
    """,
    common="env num_workers num_envs_per_worker worker_num_splits policy_workers_per_policy inline_samplers "
    "batch_size rollout device precision",
    envs=ENV_FAMILIES,
    reads=f"{TRAIN.reads} -experiment -experiments_root -train_dir -restart_behavior -benchmark "
    "-sampler_only -figures_file -status_interval -decorrelate_envs_on_one_worker "
    "-decorrelate_experience_max_seconds",
    instead=dict.fromkeys(("train_for_env_steps", "train_for_seconds"), "write --seconds=N"),
)
RUN_ALGORITHM = TRAIN._replace(
    module="run_algorithm",
    purpose="train, or step with random actions, by the command of version 1",
    description="The command of version 1. With --algo=APPO (the default) it is sample_factory.train, with "
    "--algo=DUMMY_SAMPLER it is sample_factory.dummy_sampler.",
)
PLOT_CURVES = Command(
    module="plotting.plot_curves",
    purpose="draw the learning curves of one or several runs",
    usage="FOLDER ... [--out=FILE]",
    description="Draws learning curves from the TensorBoard files of experiments, also of versions 1 and 2, "
    "and prints their last values. Each env and tag has a panel; runs that differ only in their seed are one "
    "line, with their range.",
    examples="""
    # Draw the reward of a run into curves.png.
    train_dir/basic
    # Two groups of runs over time, with a published figure as a dashed line.
    new=train_dir/a1 train_dir/a2 old=train_dir/b1 --against=seconds --level=doom_basic=0.75
    # One line for each value of a flag, over all runs in a folder.
    train_dir/grid --group_by=learning_rate --band=ci --smooth=0.05 --out=grid.svg
    """,
)
PLOT_POPULATION = Command(
    module="plotting.plot_population",
    purpose="draw objective and settings of every policy of a population (--with_pbt)",
    usage="FOLDER [--out=FILE]",
    description="Draws the objective and the evolved settings of every policy of an experiment that was "
    "trained with --with_pbt=True, with a mark for each takeover, and prints their last values.",
    examples="""
    # One run.
    train_dir/population
    # As a vector graphic with a title.
    train_dir/population --out=pbt.svg --title=Duel
    # By another objective.
    train_dir/population --tag=0_aux/avg_reward
    """,
)
PUSH_TO_HUB = Command(
    module="hub.push_to_hub",
    purpose="push an experiment to the Hugging Face Hub, with results and a video",
    usage="--experiment=NAME --hf_repository=USER/NAME [--flag=value ...]",
    description="Plays episodes, writes a video, and pushes both with a model card and all files of the "
    "experiment. Needs a token: log in with `hf auth login`, or set HF_TOKEN.",
    examples="""
    # Measure over 50 episodes, and push.
    --experiment=basic --hf_repository=me/basic --eval_episodes=50
    # The best checkpoint, into a private repository.
    --experiment=basic --hf_repository=me/basic --checkpoint=best --private_repository
    # Push once more without playing.
    --experiment=basic --hf_repository=me/basic --with_evaluation=False
    """,
    common=_EVAL_FLAGS,
    envs=_EVALUATED_ENVS,
    reads=_PLAYS_IN_PARALLEL + "eval_episodes fps overlay video_frames render_action_repeat",
    instead=_episodes("eval_episodes"),
)
LOAD_FROM_HUB = Command(
    module="hub.load_from_hub",
    purpose="load an experiment from the Hugging Face Hub",
    usage="-r USER/NAME [--flag=value]",
    description="Downloads a repository as an experiment, which all commands accept: enjoy, eval, train.",
    examples="""
    # As train_dir/basic.
    --hf_repository=me/basic
    # Under another name.
    --hf_repository=me/basic --experiment=theirs
    # In place of an experiment that exists.
    --hf_repository=me/basic --overwrite
    """,
)
CONVERT = Command(
    module="hub.convert",
    purpose="convert an experiment of Sample Factory 1 or 2",
    usage="--source=FOLDER [--flag=value]",
    description="Converts an experiment of Sample Factory 1 or 2, with all its policies and checkpoints, into"
    " one of this version, which all commands accept: enjoy, eval, train. The old folder is only read.",
    examples="""
    # As train_dir/doom_battle.
    --source=old/train_dir/doom_battle
    # Under another name.
    --source=old/train_dir/doom_battle --experiment=from_v1
    # An env that has another name here.
    --source=old/cartpole --env=gym_CartPole-v1
    """,
)
RUN_GRID = Command(
    module="runner.run",
    purpose="run a grid of experiments: as processes, on Slurm or on Ray",
    usage="--run=MODULE [--flag=value ...]",
    description="Runs the experiments that a Python module describes, several at a time. Ctrl+C saves and "
    "stops them; the same command skips what is finished and resumes the rest. At the end it writes "
    "results.csv and curves.png. The module is explained in sample_factory/runner/README.md.",
    examples="""
    # Four runs at a time on this machine.
    --run=examples/grid.py --max_parallel=4
    # Four GPUs, three runs on each.
    --run=my_package.my_grid --max_parallel=12 --num_gpus=4 --experiments_per_gpu=3
    # A job for each run on a Slurm cluster.
    --run=my_package.my_grid --runner=slurm --slurm_gpus_per_job=1 --slurm_cpus_per_gpu=12
    """,
)
SEARCH = Command(
    module="runner.search",
    purpose="search the flags that learn best, with Optuna: as processes, on Slurm or on Ray",
    usage="--run=MODULE [--flag=value ...]",
    description="Tries flags of a space that a Python module describes, in several envs and with several "
    "seeds. Ctrl+C saves and stops; the same command continues. At the end it writes the best flags for "
    "train --cfg, a table and pictures. The module is explained in sample_factory/runner/README.md.",
    examples="""
    # Two runs at a time on this machine.
    --run=examples/search.py --max_parallel=2
    # A job for each run on a Slurm cluster.
    --run=my_package.my_search --runner=slurm --max_parallel=16
    # On a Ray cluster.
    --run=my_package.my_search --runner=ray --ray_address=auto --max_parallel=16
    """,
)
TB = Command(
    module="tb",
    purpose="start TensorBoard on the experiments that match masks",
    usage="[MASK ...] [--dir=FOLDER]",
    description="Starts TensorBoard on experiments that are selected by the names of their folders.",
    examples="""
    # All experiments in train_dir.
    
    # Those with battle in their names, also in folders of grids.
    '*battle*'
    # The runs of a grid with seed 0.
    'my_grid/*_see_0*' --dir=train_dir --port=6007
    """,
)
# What the flags in --eval_flags are for.
EVAL_FLAGS = Command(
    "evaluations during training",
    "",
    "",
    "",
    reads=_EXPERIMENT + _NETWORK + _CHOOSES + "env_frameskip env_framestack seed rollout num_envs_per_worker "
    "worker_num_splits eval_episodes",
    instead={**_episodes("eval_episodes"), **_FILMS},
)
# The function of that name.
LOAD_POLICY = Command(
    "load_policy",
    "act with a trained policy",
    "",
    "",
    reads=_PLAYS + "eval_deterministic continuous_actions_sample device -seed",
    instead=dict.fromkeys(("eval_episodes", "max_num_episodes"), "the loop that calls `act` decides"),
)
COMMANDS = (
    TRAIN,
    ENJOY,
    EVAL,
    RECORD,
    EXPORT,
    PLOT_CURVES,
    PLOT_POPULATION,
    RUN_GRID,
    SEARCH,
    TB,
    MATCH,
    IMITATE,
    PLAY_DOOM,
    PUSH_TO_HUB,
    LOAD_FROM_HUB,
    CONVERT,
    BENCHMARK,
    DUMMY_SAMPLER,
    RUN_ALGORITHM,
)

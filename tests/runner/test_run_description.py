"""Run descriptions: which commands and names a grid has, and that version 1's example works."""

import json
from pathlib import Path

import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.envs.env_registry import resolve_family
from sample_factory.runner.run_description import (
    Experiment,
    ParamGrid,
    ParamList,
    RunDescription,
    short_names,
)

ENVS = ["doom_my_way_home", "doom_deadly_corridor", "doom_defend_the_center"]


def plan(*experiments, **options):
    return RunDescription("grid", experiments, **options).plan(Path("/runs"))


def test_the_example_of_version_1_is_a_run_for_each_seed_and_env():
    params = ParamGrid([("seed", [0, 1111, 2222]), ("env", ENVS)])
    cmd = "python -m sample_factory.run_algorithm --train_for_env_steps=500000000 --algo=APPO --use_rnn=True"
    experiments = [Experiment("basic_envs_fs4", cmd, params.generate_params(randomize=False))]
    runs = RunDescription("doom_basic_envs_appo", experiments=experiments).plan(Path("/runs"))
    assert len(runs) == 9
    assert runs[4].params == {"seed": 1111, "env": "doom_deadly_corridor"}
    assert runs[4].name == "04_basic_envs_fs4_see_1111_env_doom_deadly_corridor"
    assert list(runs[4].command) == [
        *cmd.split(),
        "--seed=1111",
        "--env=doom_deadly_corridor",
        f"--experiment={runs[4].name}",
        "--train_dir=/runs/doom_basic_envs_appo/basic_envs_fs4",
    ]


def test_parameters_in_a_tuple_vary_together():
    grid = ParamGrid([("seed", [1, 2]), (("use_rnn", "recurrence"), ([False, 1], [True, 16]))])
    assert list(grid.generate_params()) == [
        {"seed": 1, "use_rnn": False, "recurrence": 1},
        {"seed": 1, "use_rnn": True, "recurrence": 16},
        {"seed": 2, "use_rnn": False, "recurrence": 1},
        {"seed": 2, "use_rnn": True, "recurrence": 16},
    ]


@pytest.mark.parametrize(
    "generator",
    [ParamGrid([("a", [1, 2, 3, 4]), ("b", ["x", "y"])]), ParamList([{"a": n} for n in range(8)])],
)
def test_a_random_order_is_the_same_in_every_start(generator):
    orders = [list(generator.generate_params(randomize=True)) for _ in range(2)]
    assert orders[0] == orders[1] != list(generator.generate_params(randomize=False))


def test_an_experiment_without_parameters_is_one_run():
    (run,) = plan(Experiment("alone", "program"))
    assert run.name == "00_alone" and run.params == {}


def test_quotes_in_a_command_and_spaces_in_a_value_keep_words_together():
    (run,) = plan(Experiment("a", "program --title='two words'", [{"text": "three more words"}]))
    assert run.command[1:3] == ("--title=two words", "--text=three more words")
    assert run.name == "00_a_tex_three-more-words"


def test_lists_and_dicts_are_typed_as_train_reads_them_and_a_path_makes_no_folder():
    params = {"encoder_mlp_layers": [512, 256], "env_kwargs": {"gravity": 5.0}, "cfg": "configs/a.json"}
    (run,) = plan(Experiment("a", "program --env=gym_CartPole-v1", [params]))
    assert "--cfg=configs/a.json" in run.command and "/" not in run.name
    argv = [word for word in run.command[1:] if not word.startswith("--cfg")]
    config = parse_config(argv, resolve_family)
    assert config.model.encoder_mlp_layers == (512, 256)
    assert json.loads(config.flat()["env_kwargs"]) == {"gravity": 5.0}


def test_abbreviations_of_parameters_differ():
    assert short_names(["seed", "learning_rate", "learning_ratio", "num_workers", "see"]) == {
        "seed": "see",
        "learning_rate": "l.rat",
        "learning_ratio": "l.rati",
        "num_workers": "n.wor",
        "see": "see_",
    }


def test_options_for_other_programs_change_names_and_arguments():
    (run,) = plan(
        Experiment("a", "python main.py", [{"seed": 1}], env_vars={"OMP_NUM_THREADS": 1}),
        experiment_arg_name="name",
        experiment_dir_arg_name="dir",
        customize_experiment_name=False,
        param_prefix="",
    )
    assert list(run.command) == ["python", "main.py", "seed=1", "name=00_a", "dir=/runs/grid/a"]
    assert run.env_vars == {"OMP_NUM_THREADS": "1"}


def test_version_1s_format_of_folders_is_a_root_below_the_train_dir():
    (run,) = plan(Experiment("a", "program"), experiment_dirs_sf_format=True)
    assert run.command[2:] == ("--train_dir=/runs", "--experiments_root=grid/a")


@pytest.mark.parametrize(
    ("experiments", "message"),
    [
        ([Experiment("a", "one"), Experiment("a", "two")], "several runs have the name 00_a"),
        ([], "no experiments"),
        ([Experiment("a", "program 'unfinished")], "the command of Experiment 'a': No closing quotation"),
        ([Experiment("a", " ")], "has no command"),
        ([Experiment("a", "program", [{"text": "x" * 300}])], "customize_experiment_name=False"),
    ],
)
def test_a_description_that_cannot_work_is_one_line(experiments, message):
    with pytest.raises(ConfigError, match=message) as failed:
        plan(*experiments)
    assert "\n" not in str(failed.value)

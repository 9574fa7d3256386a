"""Conversion of experiments of Sample Factory 1 and 2: the outputs of the published code, and bad input."""

import json
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import torch

from sample_factory.__main__ import command
from sample_factory.checkpoints.milestones import best_value
from sample_factory.config.command import PLAYS
from sample_factory.config.flags import ConfigError
from sample_factory.config.parsing import parse_config
from sample_factory.config.sections import RunFlags
from sample_factory.envs.env_info import OwnSpaces
from sample_factory.envs.env_registry import resolve_family
from sample_factory.evaluation.load_policy import load_policy
from sample_factory.evaluation.policy import load_weights
from sample_factory.evaluation.policy_choice import PolicyChoice
from sample_factory.families.doom.doom_family import DOOM_SPECS
from sample_factory.hub.convert_experiment import convert_experiment, read_old_state
from sample_factory.learning.gradient_descent import GradientDescent
from sample_factory.models.policy_spec import make_policy_spec
from sample_factory.population.pbt import Member, Population, tuned_hyperparameters
from sample_factory.spaces.observations import observation_layout

TOLERANCE = 1e-4
OLD_FILE = "checkpoint_p0/checkpoint_000000001_2.pth"
OLD_SETTINGS = '{"hidden_size": 8, "encoder_subtype": "x", "env": "doom_basic"}'

Box = gym.spaces.Box
Discrete = gym.spaces.Discrete


def vector(size):
    return Box(-np.inf, np.inf, (size,), np.float32)


def choices(*sizes):
    return gym.spaces.Tuple(list(map(Discrete, sizes)))


IMAGE = Box(0, 255, (3, 48, 64), np.uint8)
STACK = Box(0, 255, (84, 84), np.uint8)  # --env_framestack=4 adds an axis
DOOM = gym.spaces.Dict({"obs": IMAGE})
BATTLE = gym.spaces.Dict({"obs": IMAGE, "measurements": vector(23)})
TWO_INPUTS = gym.spaces.Dict({"camera": IMAGE, "obs": vector(5)})
HYBRID = gym.spaces.Tuple([*choices(3, 3, 3, 2, 2), Box(-1, 1, (1,), np.float32)])
SPACES = {
    "v1_doom_battle": OwnSpaces(BATTLE, choices(3, 3, 2, 2, 11)),
    "v1_doom_basic_lstm": OwnSpaces(DOOM, Discrete(4)),
    "v1_doom_resnet": OwnSpaces(BATTLE, choices(3, 3, 2, 2, 11)),
    "v1_atari_breakout": OwnSpaces(STACK, Discrete(4)),
    "v1_mujoco_hopper": OwnSpaces(vector(11), Box(-1, 1, (3,), np.float32)),
    "v2_doom_battle": OwnSpaces(BATTLE, choices(3, 3, 2, 2, 11)),
    "v2_doom_resnet": OwnSpaces(DOOM, choices(3, 2)),
    "v2_doom_hybrid": OwnSpaces(BATTLE, HYBRID),
    "v2_atari_pong": OwnSpaces(STACK, Discrete(6)),
    "v2_mujoco_hopper": OwnSpaces(vector(11), Box(-1, 1, (3,), np.float32)),
    "v2_mujoco_lstm": OwnSpaces(vector(17), Box(-1, 1, (6,), np.float32)),
    "v2_two_inputs": OwnSpaces(TWO_INPUTS, Discrete(3)),
}
SCHEME = DOOM_SPECS["doom_battle"].shaping
ENV = {"v2_two_inputs": "gym_CartPole-v1"}  # was an env of a user's own


def convert_to(tmp_path, folder, **options):
    destination = RunFlags(experiment="new", train_dir=str(tmp_path))
    options = {"env": ENV.get(folder.name), "spaces": SPACES[folder.name], **options}
    return convert_experiment(folder, destination, **options)


def load_model(folder, spaces, policy=0, kind="latest"):
    """Returns the model of a converted experiment, its Config, and what the checkpoint holds."""
    config = read_config(folder)
    stored = observation_layout(stored_space(config, spaces)).space
    spec = make_policy_spec(config, stored, spaces.action)._replace(device="cpu", precision="fp32")
    model = spec.build(policy).model.eval()
    return model, config, load_weights(config, PolicyChoice(policy, kind), model)


def read_config(folder):
    argv = [f"--experiment={folder.name}", f"--train_dir={folder.parent}"]
    return parse_config(argv, resolve_family, PLAYS)


def stored_space(config, spaces):
    if config.env.env_framestack == 1:
        return spaces.observation
    return Box(0, 255, (config.env.env_framestack, *spaces.observation.shape), np.uint8)


@pytest.mark.parametrize("name", sorted(SPACES))
def test_a_converted_network_computes_what_the_published_code_computes(old, tmp_path, name):
    folder = old(name)
    model, _, _ = load_model(convert_to(tmp_path, folder), SPACES[name])
    expected = dict(np.load(folder.parent / "expected.npz"))
    observations = {key[4:]: torch.from_numpy(expected[key]) for key in expected if key.startswith("obs_")}
    steps, rows = expected["values"].shape
    rnn_state = torch.zeros(rows, model.state_size)
    for t in range(steps):
        output = model.act({key: rows[t] for key, rows in observations.items()}, rnn_state, True)
        rnn_state = output.rnn_state
        returns = output.values
        if model.returns_normalizer is not None:
            returns = model.returns_normalizer.denormalize(returns)
        computed = {"logits": output.logits, "values": output.values, "returns": returns}
        if model.state_size:
            computed["rnn_states"] = rnn_state
        for quantity, tensor in computed.items():
            np.testing.assert_allclose(tensor, expected[quantity][t], atol=TOLERANCE, err_msg=quantity)
    assert np.ptp(expected["logits"]) > 100 * TOLERANCE, "outputs that differ too little show nothing"


def test_the_command_makes_an_experiment_that_loads_and_acts(old, tmp_path, capsys):
    folder = old("v2_mujoco_hopper")
    assert command("convert")([f"--source={folder}", "--experiment=new", f"--train_dir={tmp_path}"]) == 0
    assert (
        f"python -m sample_factory.enjoy --experiment=new --train_dir={tmp_path}" in capsys.readouterr().out
    )
    spaces = SPACES[folder.name]
    policy = load_policy(
        "new",
        tmp_path,
        checkpoint="best",
        deterministic=True,
        observation_space=spaces.observation,
        action_space=spaces.action,
    )
    assert spaces.action.contains(policy.act(np.zeros(11, np.float32)))


def test_counters_moments_and_all_policies_are_converted(old, tmp_path):
    folder = old("v1_doom_basic_lstm")
    converted = convert_to(tmp_path, folder)
    for policy, path in enumerate(sorted(folder.glob("checkpoint_p*/*.pth"))):
        before = torch.load(path, weights_only=True)
        model, config, after = load_model(converted, SPACES[folder.name], policy)
        assert (
            (after["train_step"], after["env_steps"]) == (before["train_step"], before["env_steps"]) != (0, 0)
        )
        assert (converted / path.parent.name / path.name).exists()
        GradientDescent(config.learning, {"model": model}).load_state_dict(after)  # as training continues
        names = [name for name, _ in model.named_parameters()]
        head = after["optimizer"]["state"][names.index("critic_head.weight")]
        old_head = before["optimizer"]["state"][list(before["model"]).index("critic_linear.weight")]
        assert torch.equal(head["exp_avg"], old_head["exp_avg"]) and head["exp_avg"].any()
    assert policy == 1


def evolved(old, **changes):
    """Unpacks an experiment of two policies as that of a population; returns its folder, and what each policy
    has evolved. changes: text of further files."""
    folder = old("v1_doom_basic_lstm")
    values = json.loads((folder / "cfg.json").read_text())
    (folder / "cfg.json").write_text(json.dumps({**values, "with_pbt": True, "pbt_optimize_gamma": True}))
    names = ("learning_rate", "exploration_loss_coeff", "value_loss_coeff", "max_grad_norm", "gamma")
    names += ("ppo_clip_ratio", "ppo_clip_value")
    flags = [{name: values[name] / (2 + policy) for name in names} for policy in range(2)]
    pairs = [{name: [1 + policy, -2.0] for name in SCHEME["delta"]} for policy in range(2)]
    for policy, (settings, delta) in enumerate(zip(flags, pairs)):
        shaping = {"delta": delta, "selected_weapon": dict.fromkeys(SCHEME["selected_weapon"], 0.5)}
        (folder / f"policy_0{policy}_cfg.json").write_text(json.dumps({**settings, "adam_beta1": 0.8}))
        (folder / f"policy_0{policy}_reward_shaping.json").write_text(json.dumps(shaping))
    for name, text in changes.items():
        (folder / f"{name}.json").write_text(text)
    return folder, flags


def population_of(folder):
    """Returns the members of a converted population as its training starts."""
    config = read_config(folder)
    names = tuned_hyperparameters(config.population, config.run.algo)
    default = Member({name: getattr(config.learning, name) for name in names}, SCHEME)
    return Population(config.population, default, config.learning, folder, 2, seed=0).members


def test_a_population_goes_on_with_what_each_of_its_policies_has_evolved(old, tmp_path):
    folder, flags = evolved(old)
    for policy, member in enumerate(population_of(convert_to(tmp_path, folder))):
        assert member.hyperparameters == flags[policy]
        assert all(weight == {"gain": 1 + policy, "loss": -2} for weight in member.shaping["delta"].values())
        assert member.shaping["delta"].keys() == SCHEME["delta"].keys()
        assert set(member.shaping["selected_weapon"].values()) == {0.5}


@pytest.mark.parametrize(
    ("text", "lines"), [("null", 0), ('{"delta": {"HEALTH": 1}}', 1), ('{"delta": 3}', 1), ("[]", 1)]
)
def test_a_reward_shaping_of_another_form_is_logged_and_the_default(old, tmp_path, caplog, text, lines):
    folder, flags = evolved(old, policy_00_reward_shaping=text)
    members = population_of(convert_to(tmp_path, folder))
    assert caplog.text.count("Policy 0 starts from the default reward shaping") == lines
    assert members[0] == Member(flags[0], SCHEME) and members[1].shaping != SCHEME


def test_evolved_settings_that_cannot_be_used_are_refused_by_the_file(old, tmp_path):
    folder, _ = evolved(old, policy_01_cfg='{"learning_rate": "fast"}')
    with pytest.raises(ConfigError, match=r"policy_01_cfg\.json: learning_rate"):
        convert_to(tmp_path, folder)
    assert not (tmp_path / "new").exists() and not list(tmp_path.glob(".*"))


def test_the_best_checkpoint_and_its_value_are_converted(old, tmp_path):
    folder = old("v2_mujoco_hopper")
    converted = convert_to(tmp_path, folder)
    (best,) = folder.glob("checkpoint_p0/best_*")
    assert (converted / "checkpoint_p0" / best.name).exists()
    _, config, _ = load_model(converted, SPACES[folder.name], kind="best")
    assert best_value(converted / best.name, "reward") == float(best.stem.rpartition("_")[2])
    assert config.sampling.num_envs_per_worker == 2 and config.family.vector_env_copies == 1


def test_settings_get_the_meaning_that_they_had(old, tmp_path):
    config = read_config(convert_to(tmp_path, old("v1_doom_battle")))
    assert config.env_name == "doom_battle"
    assert config.env.env_framestack == 1  # 4 was saved, and stacked images of Atari only
    assert config.env.env_frameskip == 4
    assert (config.learning.reward_clip, config.learning.learning_rate) == (10.0, 1e-4)
    assert not config.model.normalize_input and not config.learning.normalize_returns
    assert config.unknown["pixel_format"] == "CHW"  # no flag here, and kept


def test_steps_become_frames_where_frames_were_not_counted(old, tmp_path):
    folder = old("v2_atari_pong")
    settings = folder / "config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "summaries_use_frameskip": False}))
    (path,) = convert_to(tmp_path, folder).glob("checkpoint_p0/*.pth")
    (before,) = folder.glob("checkpoint_p0/*.pth")
    frames = 4 * torch.load(before, weights_only=True)["env_steps"]
    assert path.name.endswith(f"_{frames}.pth")


GONE = object()
NO_WEIGHTS = r"\.pth is damaged or no checkpoint: its `model` should be a dict"
NOT_OLD = r"normaliser returns_normalizer\.running_var is not in the old"


@pytest.mark.parametrize(
    ("name", "settings", "weights", "message"),
    [
        ("v1_mujoco_hopper", {"encoder_custom": "my_encoder"}, {}, "--encoder_custom=my_encoder"),
        ("v1_mujoco_hopper", {"encoder_type": GONE}, {}, "incomplete: it has no encoder_type"),
        ("v1_mujoco_hopper", {"encoder_extra_fc_layers": GONE}, {}, "it has no encoder_extra_fc_layers"),
        ("v1_doom_resnet", {"nonlinearity": GONE}, {}, "it has no nonlinearity"),
        ("v2_mujoco_hopper", {"encoder_conv_architecture": GONE}, {}, "it has no encoder_conv_architecture"),
        ("v2_mujoco_hopper", {}, {"encoder.attention.weight": torch.zeros(2)}, "encoder.attention.weight"),
        ("v2_mujoco_hopper", {}, {"returns_normalizer.running_var": GONE}, NOT_OLD),
        ("v2_mujoco_hopper", {}, {"encoder.weight": 1.0}, NO_WEIGHTS),
        ("v2_mujoco_hopper", {}, torch.ones(3), NO_WEIGHTS),
        ("v2_mujoco_hopper", {}, [torch.ones(3)], NO_WEIGHTS),
    ],
)
def test_what_is_missing_or_has_no_counterpart_is_refused_by_its_name(
    old, tmp_path, name, settings, weights, message
):
    """weights: changes of the weights by name, or what stands in their place."""

    def changed(values, changes):
        return {key: value for key, value in {**values, **changes}.items() if value is not GONE}

    folder = old(name)
    [file] = [path for path in folder.glob("c*.json") if not path.is_symlink()]
    file.write_text(json.dumps(changed(json.loads(file.read_text()), settings)))
    for path in folder.glob("checkpoint_p0/*.pth"):
        state = torch.load(path, weights_only=False)
        state["model"] = changed(state["model"], weights) if isinstance(weights, dict) else weights
        torch.save(state, path)
    with pytest.raises(ConfigError, match=message):
        convert_to(tmp_path, folder)
    assert not (tmp_path / "new").exists() and not list(tmp_path.glob(".*"))


def test_other_spaces_are_refused_by_the_layer(old, tmp_path):
    with pytest.raises(ConfigError, match="shape .* would fit: the "):
        convert_to(tmp_path, old("v2_mujoco_hopper"), spaces=SPACES["v2_mujoco_lstm"])


def test_a_folder_that_cannot_be_written_is_named(old, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write .*Not a directory"):
        convert_to(tmp_path / "file", old("v2_mujoco_hopper"))


class RunsCode:
    """An object that runs code when it is loaded."""

    def __reduce__(self):
        return (print, ("code of a checkpoint ran",))


CHECKPOINT = {"model": {}, "train_step": np.int64(1), "env_steps": 2, "best_performance": np.float32(0.5)}


def test_scalars_of_numpy_1_and_2_are_loaded(tmp_path):
    two = tmp_path / "two.pth"
    torch.save(CHECKPOINT, two)
    assert read_old_state(two) == CHECKPOINT
    one = tmp_path / "one.pth"
    with zipfile.ZipFile(two) as archive, zipfile.ZipFile(one, "w") as copy:
        for name in archive.namelist():
            copy.writestr(name, archive.read(name).replace(b"numpy._core.", b"numpy.core."))
    assert one.read_bytes() != two.read_bytes()
    assert read_old_state(one) == CHECKPOINT


def test_files_of_the_first_versions_of_torch_are_loaded(tmp_path):
    path = tmp_path / "old.pth"
    state = {**CHECKPOINT, "model": {"critic_linear.bias": torch.ones(1)}}
    torch.save(state, path, _use_new_zipfile_serialization=False)
    assert read_old_state(path) == state


def test_code_in_a_checkpoint_runs_only_if_it_is_allowed(tmp_path, capsys):
    path = tmp_path / "checkpoint_000000001_2.pth"
    torch.save({**CHECKPOINT, "code": RunsCode()}, path)
    with pytest.raises(ConfigError, match="--trust_code"):
        read_old_state(path)
    assert capsys.readouterr().out == ""
    read_old_state(path, trust_code=True)
    assert capsys.readouterr().out == "code of a checkpoint ran\n"


@pytest.mark.parametrize(
    "files, reason",
    [
        ({}, "there is no cfg.json or config.json in it"),
        ({"cfg.json": "{}"}, "there is no hidden_size or rnn_size"),
        ({"cfg.json": '{"hidden_size": 8, "inline_samplers": 0}'}, "is of this version"),
        ({"cfg.json": OLD_SETTINGS}, "has no checkpoints"),
        (
            {"cfg.json": OLD_SETTINGS, OLD_FILE: "no checkpoint"},
            f"{OLD_FILE}: it is damaged or no checkpoint",
        ),
    ],
)
def test_a_folder_of_something_else_is_refused_in_one_line(tmp_path, refused_by, files, reason):
    source = tmp_path / "old"
    for name, text in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    source.mkdir(exist_ok=True)
    assert reason in refused_by(
        command("convert"), f"--source={source}", "--experiment=new", f"--train_dir={tmp_path}"
    )


def test_a_missing_folder_and_an_existing_experiment_are_refused_in_one_line(tmp_path, refused_by):
    place = ["--experiment=new", f"--train_dir={tmp_path}"]
    assert "--source" in refused_by(command("convert"), f"--source={tmp_path}/absent", *place)
    (tmp_path / "new").mkdir()
    assert "--experiment" in refused_by(command("convert"), f"--source={tmp_path}", *place)
    assert "--source=FOLDER" in refused_by(command("convert"), *place)

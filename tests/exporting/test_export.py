"""An exported policy acts as the trained one, with observations and actions of the env."""

import json
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import sample_factory
from examples import play_onnx
from sample_factory import ConfigError, register_core, register_env
from sample_factory.__main__ import command
from sample_factory.checkpoints.store import Checkpoints
from sample_factory.envs.abilities import NamesActions
from sample_factory.exporting import export_policies
from tests.evaluation.playable_envs import UnevenAgents
from tests.guided import Guided, Unguided
from tests.mixed import MixedCounting

ROOT = Path(__file__).parents[2]
NUM_MASKED = 9  # 2 + 3 + 4 choices


class Everything(gym.Env, NamesActions):
    """An env with most kinds of observations, one of which is called as an output, and of actions."""

    observation_space = gym.spaces.Dict(
        action_0=gym.spaces.Discrete(3, start=5),
        action_mask=gym.spaces.Box(0, 1, (NUM_MASKED,), np.int8),
        binary=gym.spaces.MultiBinary(3),
        nested=gym.spaces.Dict(several=gym.spaces.MultiDiscrete([3, 4], start=[1, 2])),
        picture=gym.spaces.Box(0, 255, (36, 40, 3), np.uint8),
        wide=gym.spaces.Box(-10, 10, (2,), np.float64),
    )
    action_space = gym.spaces.Tuple(
        (
            gym.spaces.Discrete(2, start=3),
            gym.spaces.MultiDiscrete([3, 4], start=[1, 0]),
            gym.spaces.Box(np.array([-0.1, -np.inf], np.float32), np.array([0.1, 0.2], np.float32)),
        )
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self._step = 0
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        assert self._mask[[action[0] - 3, *(action[1] - [1, 0] + [2, 5])]].all()
        self._step += 1
        return self._observe(), 1.0, self._step == 6, False, {}

    def action_text(self, action):
        return f"first {action[0]}"

    def _observe(self):
        observation = self.observation_space.sample()
        self._mask = observation["action_mask"]
        self._mask[[0, 2, 5]] = 1  # one of each choice is allowed
        return observation


@pytest.fixture(scope="module")
def everything(tmp_path_factory, save):
    """Returns the train_dir of an experiment, and the file that the command wrote for it."""
    register_env("everything", lambda *args, **kwargs: Everything())
    folder = tmp_path_factory.mktemp("everything")
    small = ["--hidden_size=8", "--encoder_mlp_layers", "8", "--use_rnn=True", "--normalize_input=True"]
    identity = save(folder, "everything", *small, "--encoder_subtype=convnet_atari")
    path = folder / "new" / "agent.onnx"
    (checkpoint,) = folder.glob("tiny/checkpoint_p0/*.pth")
    flags = ["--export_value=True", "--export_check_steps=20", f"--checkpoint={checkpoint}"]
    assert command("export")([*identity, *flags, f"--export_path={path}"]) == 0
    return folder, path


def test_it_acts_like_the_loaded_policy_with_raw_observations(everything):
    folder, path = everything
    spaces = {"observation_space": Everything.observation_space, "action_space": Everything.action_space}
    policy = sample_factory.load_policy("tiny", folder, deterministic=True, **spaces)
    session = onnxruntime.InferenceSession(str(path))
    assert [output.name for output in session.get_outputs()] == [
        *["action_0", "action_1", "action_2", "logits_0", "logits_1", "mean_2", "stddev_2"],
        *["next_rnn_state", "value"],
    ]
    env = Everything()
    observation, _ = env.reset(seed=3)
    memory = np.zeros((1, 8), np.float32)
    seen = set()
    for _ in range(12):
        flat = {**observation, **{f"nested/{key}": x for key, x in observation["nested"].items()}}
        flat["observation_action_0"] = flat.pop("action_0")
        del flat["nested"]
        inputs = {key: np.asarray(value)[None] for key, value in flat.items()}
        names = ["action_0", "action_1", "action_2", "next_rnn_state"]
        *exported, memory = session.run(names, {**inputs, "rnn_state": memory})
        action = policy.act(observation)
        for ours, theirs in zip(exported, action):
            np.testing.assert_allclose(ours[0], theirs, atol=1e-5)
        assert env.action_space.contains(tuple(part[0] for part in exported))
        seen.add(str(action[:2]))
        observation = env.step(action)[0]
        if env._step == 6:
            observation, _ = env.reset()
            policy.reset()
            memory = np.zeros((1, 8), np.float32)
    assert len(seen) > 2, "the observations should matter"


def test_the_file_describes_itself_and_holds_no_paths(everything):
    folder, path = everything
    model = onnx.load(path)
    texts = {entry.key: entry.value for entry in model.metadata_props}
    assert texts["env"] == "everything" and texts["sample_factory"] == sample_factory.__version__
    assert texts["checkpoint"] == "checkpoint_000000001_4.pth"
    assert (texts["train_steps"], texts["env_frames"], texts["rnn_state_size"]) == ("1", "4", "8")
    observations = {entry["key"]: entry for entry in json.loads(texts["observations"])}
    assert observations["picture"]["dtype"] == "uint8" and observations["wide"]["dtype"] == "float64"
    assert observations["action_0"]["input"] == "observation_action_0"
    first, second, third = json.loads(texts["actions"])
    assert first["n"] == 2 and first["start"] == 3 and first["meanings"] == ["first 3", "first 4"]
    assert second["nvec"] == [3, 4] and second["logits"] == "logits_1"
    assert third["low"] == [pytest.approx(-0.1), None] and third["stddev"] == "stddev_2"
    tensors = [*model.graph.input, *model.graph.output]
    assert {tensor.type.tensor_type.shape.dim[0].dim_param for tensor in tensors} == {"batch"}
    root = str(Path(sample_factory.__file__).parents[1])
    assert root.encode() not in path.read_bytes() and str(folder).encode() not in path.read_bytes()


class Parts(gym.Env):
    """Actions are a Dict with parts of every kind; a mask forbids half of the choices."""

    observation_space = gym.spaces.Dict(
        obs=gym.spaces.Box(-1, 1, (3,), np.float32), action_mask=gym.spaces.MultiBinary(7)
    )
    action_space = gym.spaces.Dict(
        buttons=gym.spaces.MultiBinary(2),
        motors=gym.spaces.Tuple(
            (gym.spaces.Box(0, 1000, (2,), np.int32), gym.spaces.Box(0, 1, (1,), np.float64))
        ),
        gear=gym.spaces.Discrete(3, start=-1),
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action) and action["buttons"][0] == 1 and action["gear"] != 0
        self._step += 1
        return self._observe(), float(action["motors"][0].sum()), self._step == 6, False, {}

    def _observe(self):
        obs = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return {"obs": obs, "action_mask": np.array([0, 1, 1, 1, 1, 0, 1], np.int8)}


def test_a_dict_of_actions_has_an_output_for_each_part(tmp_path, save):
    register_env("parts", lambda *args, **kwargs: Parts())
    save(tmp_path, "parts", "--use_rnn=False", "--encoder_mlp_layers", "8", "--scale_actions=True")
    path = tmp_path / "parts.onnx"
    (exported,) = sample_factory.export_onnx("tiny", path, tmp_path, export_check_steps=30)
    assert exported.check.episodes == 5
    texts = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    parts = json.loads(texts["actions"])
    paths = [["buttons"], ["motors", 0], ["motors", 1], ["gear"]]
    assert [(part["output"], part["path"]) for part in parts] == [
        ("action_" + "_".join(map(str, path)), path) for path in paths
    ]
    policy = sample_factory.load_policy("tiny", tmp_path, deterministic=True)
    agent, drawing = (play_onnx.Agent(str(path), sample, 0) for sample in (False, True))
    env = Parts()
    observation, _ = env.reset(seed=3)
    motors = []
    for _ in range(6):
        action, expected = agent.act(observation), policy.act(observation)
        assert env.action_space.contains(action) and action["gear"] == expected["gear"]
        np.testing.assert_array_equal(action["buttons"], expected["buttons"])
        for ours, theirs in zip(action["motors"], expected["motors"], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)
        motors.append(action["motors"][0])
        observation, *_ = env.step(drawing.act(observation))
    assert 200 < np.mean(motors) < 800, "the middle of the bounds, before any training"


def test_a_difference_is_an_error_and_an_earlier_file_stays(everything, monkeypatch, capsys):
    folder, path = everything
    broken = onnx.load(path)
    weights = {tensor.name: tensor for tensor in broken.graph.initializer}
    (weight,) = [weights[name] for name in weights if name.endswith("action_head.linear.bias")]
    weight.raw_data = (np.frombuffer(weight.raw_data, np.float32) + np.float32(0.001)).tobytes()
    monkeypatch.setattr(export_policies, "to_onnx", lambda network: broken)
    before = path.read_bytes()
    flags = ["--experiment=tiny", f"--train_dir={folder}", "--export_value=True"]
    assert command("export")([*flags, f"--export_path={path}"]) == 1
    assert command("export")([*flags, f"--export_path={path.parent / 'other.onnx'}"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ") and "0.001" in error
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]


@pytest.fixture
def converted(monkeypatch) -> list[onnx.ModelProto]:
    """The models that the network of this test was converted to; converting takes most of the time."""
    models = []
    to_onnx = export_policies.to_onnx
    monkeypatch.setattr(
        export_policies, "to_onnx", lambda network: models.append(to_onnx(network)) or models[-1]
    )
    return models


def test_each_kind_of_agents_gets_a_file_and_a_checkpoint_file_is_exported_alone(
    tmp_path, save, converted, monkeypatch
):
    register_env("mixed_", lambda *args, **kwargs: MixedCounting())
    flags = ["--hidden_size=8", "--encoder_mlp_layers", "8", "--env_framestack=2", "--use_rnn=True"]
    save(tmp_path, "mixed_x", *flags, "--rnn_type=lstm", "--actor_critic_share_weights=False")
    exported = sample_factory.export_onnx("tiny", tmp_path / "agent.onnx", tmp_path, export_check_steps=12)
    assert [one.path.name for one in exported] == ["agent_0.onnx", "agent_1.onnx"]
    watcher, walker = (onnxruntime.InferenceSession(str(one.path)) for one in exported)
    shapes = {entry.name: entry.shape[1:] for entry in watcher.get_inputs()}
    assert shapes == {"picture": [2, 5, 4, 3], "where": [4], "rnn_state": [32]}
    assert [output.name for output in walker.get_outputs()] == ["action", "mean", "stddev", "next_rnn_state"]
    assert all(one.check.largest < 1e-4 and one.check.episodes >= 2 for one in exported)
    monkeypatch.setattr(export_policies, "to_onnx", lambda network: converted[1])  # it is compared again
    (file,) = (tmp_path / "tiny" / "checkpoint_p1").glob("*.pth")
    (alone,) = sample_factory.export_onnx(file, tmp_path / "own.onnx", export_check_steps=12)
    assert alone.path == tmp_path / "own.onnx" and "policy 1, " in alone.summary


def test_what_only_the_critic_gets_is_no_input_whether_the_env_has_it_or_not(
    tmp_path, save, converted, monkeypatch
):
    register_env("guided", lambda name: Guided())
    register_env("unguided", lambda name: Unguided())
    flags = ["--hidden_size=8", "--encoder_mlp_layers", "8", "--use_rnn=True"]
    save(tmp_path, "guided", *flags, "--critic_only_keys=next/card")
    for env in ("guided", "unguided"):
        (exported,) = sample_factory.export_onnx("tiny", None, tmp_path, env=env, export_check_steps=12)
        inputs = onnxruntime.InferenceSession(str(exported.path)).get_inputs()
        assert [(entry.name, entry.shape[1:]) for entry in inputs] == [("card", [4]), ("rnn_state", [8])]
        assert exported.check.largest < 1e-4 and exported.check.episodes == 2
        # The network is the same in the env that does not have the key: the file is compared with it.
        monkeypatch.setattr(export_policies, "to_onnx", lambda network: converted[0])
    with pytest.raises(ConfigError, match="value.*next/card"):
        sample_factory.export_onnx("tiny", None, tmp_path, value=True)


class Counter(nn.Module):
    """A core that counts the steps."""

    def __init__(self, flags, in_size):
        super().__init__()
        self.out_size = in_size
        self.state_size = 1

    def forward(self, x, rnn_state, resets):
        outputs = []
        for t in range(len(x)):
            if resets is not None:
                rnn_state = rnn_state * ~resets[t].unsqueeze(-1)
            outputs.append(x[t] + rnn_state.expand(len(rnn_state), self.out_size))
            rnn_state = rnn_state + 1
        return torch.stack(outputs), rnn_state


class Branching(Counter):
    """A core that no exporter can follow."""

    def forward(self, x, rnn_state, resets):
        return super().forward(x * 1.0 if x.sum() > 0 else x, rnn_state, resets)


def example(path, *flags):
    """Returns the rewards that examples/play_onnx.py prints; it may import neither torch nor this package."""
    program = (
        "import runpy, sys; sys.modules.update({'torch': None, 'sample_factory': None}); "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    script = f"import sys; del sys.argv[0]; {program}"
    argv = [sys.executable, "-c", script, str(ROOT / "examples" / "play_onnx.py"), str(path), *flags]
    shown = subprocess.run(argv, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    return [float(reward) for reward in shown.stdout.splitlines()[0].split()[1:]]


def rewards_of_loaded_policy(folder, episodes, seed):
    own = gym.make("CartPole-v1")
    spaces = {"observation_space": own.observation_space, "action_space": own.action_space}
    policy = sample_factory.load_policy("tiny", folder, deterministic=True, **spaces)
    env = policy.make_env()
    rewards = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed + episode)
        policy.reset()
        rewards.append(0.0)
        ended = False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
            rewards[-1] += reward
            ended = terminated or truncated
    env.close()
    return rewards


@pytest.mark.parametrize(("core", "code"), [(Counter, 0), (Branching, 1)])
def test_a_users_core_is_exported_and_played_in_the_env_of_the_training_or_the_reason_is_one_line(
    tmp_path, save, capsys, core, code
):
    register_core("own", core)
    env = ["gym_CartPole-v1", "--env_frameskip=3", '--env_kwargs={"max_episode_steps": 16}']
    identity = save(tmp_path, *env, "--core_custom=own", "--encoder_mlp_layers", "4")
    capsys.readouterr()
    assert command("export")([*identity, "--export_check_steps=30"]) == code
    shown = capsys.readouterr()
    path = tmp_path / "tiny" / "policy_0.onnx"
    if code == 0:
        assert "  outputs  action, logits, next_rnn_state\n  largest difference to torch " in shown.out
        state = {"obs": np.zeros((1, 4), np.float32), "rnn_state": np.full((1, 1), 41, np.float32)}
        assert onnxruntime.InferenceSession(str(path)).run(["next_rnn_state"], state)[0] == 42
        assert example(path, "--episodes=5", "--seed=4") == rewards_of_loaded_policy(tmp_path, 5, seed=4)
        assert example(path, "--episodes=1", "--sample")
    else:
        assert not path.exists()
        assert len([line for line in shown.err.splitlines() if line.startswith("error: ")]) == 1
        assert "torch cannot export this network; forward should have no branch" in shown.err


def test_the_comparison_zeroes_the_state_after_each_step_in_which_the_agent_was_inactive(
    tmp_path, save, monkeypatch
):
    states = []
    compare = export_policies.compare

    def compare_and_note(model, *others):
        act = model.act

        def noted(observations, state, **how):
            states.append(state[:, 0].tolist())
            return act(observations, state, **how)

        model.act = noted
        return compare(model, *others)

    monkeypatch.setattr(export_policies, "compare", compare_and_note)
    register_core("own", Counter)
    register_env("uneven", lambda *args, **kwargs: UnevenAgents())
    save(tmp_path, "uneven", "--core_custom=own", "--encoder_mlp_layers", "4")
    sample_factory.export_onnx("tiny", train_dir=tmp_path, export_check_steps=6)
    first, second = zip(*states[:6])
    assert first == (0, 1, 0, 1, 0, 1)
    assert second == (0, 1, 0, 0, 1, 0), "inactive in its second step of three"


def test_a_window_of_remembered_steps_is_exported_as_the_state(tmp_path, save):
    flags = ["--use_rnn=True", "--rnn_type=gtrxl", "--gtrxl_memory=3"]
    save(tmp_path, "gym_CartPole-v1", "--encoder_mlp_layers", "4", "--hidden_size=8", *flags)
    (exported,) = sample_factory.export_onnx("tiny", train_dir=tmp_path, export_check_steps=40)
    assert exported.check.largest < 1e-5 and exported.check.episodes >= 1


def test_bad_input_is_one_line(tmp_path, save, capsys, monkeypatch):
    identity = save(tmp_path, "gym_CartPole-v1", "--encoder_mlp_layers", "4")
    Checkpoints(tmp_path / "tiny", 0, keep=1)
    for flags, reason in {
        "--export_path=agent.pb": "--export_path=agent.pb should end with .onnx",
        "--policy_index=3": "policy 3 has no checkpoints; --policy_index may be 0",
        "--checkpoint best": "checkpoint best: there is none",
        "--checkpoint latest best": "one file is made of one checkpoint",
        f"--export_path={tmp_path}/tiny/cfg.json/a.onnx": "is no folder to write to",
    }.items():
        assert command("export")([*identity, *flags.split()]) == 2
        assert reason in capsys.readouterr().err.splitlines()[-1]
    with pytest.raises(ConfigError, match="export_path=agent.pb should end with .onnx"):
        sample_factory.export_onnx("tiny", "agent.pb", tmp_path)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert command("export")(identity) == 2
    assert "needs the package onnxruntime, which is not installed: pip install -e '.[onnx]'" in (
        capsys.readouterr().err
    )
    assert not list(tmp_path.rglob("*.onnx"))

"""Makes published/*.tar.xz: small experiments of the published 1.123.0 and 2.1.1, and their outputs.

It runs in an environment that has one of the published packages, not this one:

python make_published.py trained FOLDER   # an experiment folder that the package has trained
python make_published.py made NAME        # one of MADE: a network after a few steps, without an env

An archive has the experiment folder with one checkpoint for each policy, and `expected.npz`: observations
[T, B, ...], and the logits, values and recurrent states that the published code computes from them, policy 0.
Those of `trained` were trained for a few thousand frames (Doom 64x48 pixels, --hidden_size=16, ...; the flags
are in their settings). To keep the files small, THIN sets most weights of large layers to zero before the
outputs are computed, and the optimizer's moments with them. Version 1 cannot make its Atari and MuJoCo envs
with packages that can still be installed; those of `made` have the spaces of their envs.
"""

import io
import json
import sys
import tarfile
from pathlib import Path

import numpy as np
import torch

OUT = Path(__file__).parent / "published"
STEPS, ROWS = 3, 2
THIN, LARGE = 0.02, 1500  # share of the weights that stay, of tensors with more elements
STATISTICS = ("running_mean", "running_var", "count")  # buffers of normalisers, no parameters
NOT_KEPT = ("train_dir", "git_repo_name", "command_line", "cli_args")
MEASUREMENTS = 23
IMAGE = ("uint8", (3, 48, 64))
# Doom: numbers of choices of each part of the action. An int is the size of a Box.
SPACES = {
    "v1_doom_battle": ({"obs": IMAGE, "measurements": MEASUREMENTS}, [3, 3, 2, 2, 11]),
    "v1_doom_basic_lstm": ({"obs": IMAGE}, 4),
    "v1_doom_resnet": ({"obs": IMAGE, "measurements": MEASUREMENTS}, [3, 3, 2, 2, 11]),
    "v1_atari_breakout": ({"obs": ("uint8", (4, 84, 84))}, 4),
    "v1_mujoco_hopper": ({"obs": 11}, {"box": 3}),
    "v2_doom_battle": ({"obs": IMAGE, "measurements": MEASUREMENTS}, [3, 3, 2, 2, 11]),
    "v2_doom_resnet": ({"obs": IMAGE}, [3, 2]),
    "v2_doom_hybrid": ({"obs": IMAGE, "measurements": MEASUREMENTS}, [3, 3, 3, 2, 2, {"box": 1}]),
    "v2_atari_pong": ({"obs": ("uint8", (4, 84, 84))}, 6),
    "v2_mujoco_hopper": ({"obs": 11}, {"box": 3}),
    "v2_mujoco_lstm": ({"obs": 17}, {"box": 6}),
    "v2_two_inputs": ({"camera": IMAGE, "obs": 5}, 3),
}
DOOM = ["--env_frameskip=4", "--res_w=64", "--res_h=48", "--wide_aspect_ratio=False"]
MADE = {
    "v1_atari_breakout": ["--env=atari_breakout", "--hidden_size=16"],
    "v1_mujoco_hopper": [
        "--env=mujoco_hopper",
        "--hidden_size=8",
        "--encoder_extra_fc_layers=1",
        "--obs_scale=2.0",
        "--obs_subtract_mean=0.5",
        "--adaptive_stddev=False",
        "--rnn_num_layers=2",
        "--actor_critic_share_weights=False",
    ],
    "v1_doom_resnet": [
        *["--env=doom_battle2", *DOOM, "--hidden_size=16", "--encoder_type=resnet", "--use_rnn=False"],
        *["--encoder_subtype=resnet_impala", "--actor_critic_share_weights=False", "--recurrence=1"],
    ],
    "v2_doom_hybrid": ["--env=doom_deathmatch_full", *DOOM, "--rnn_size=8", "--adaptive_stddev=False"],
    "v2_mujoco_lstm": [
        "--env=mujoco_halfcheetah",
        *["--use_rnn=True", "--rnn_type=lstm", "--rnn_num_layers=2", "--rnn_size=8"],
        *["--encoder_mlp_layers", "16", "16", "--decoder_mlp_layers", "12", "--nonlinearity=tanh"],
        *["--adaptive_stddev=True", "--continuous_tanh_scale=2.0", "--actor_critic_share_weights=False"],
        *["--normalize_input=False", "--recurrence=32"],
    ],
    "v2_two_inputs": ["--env=my_env", "--rnn_size=8", "--encoder_mlp_layers", "8", "--rnn_type=lstm"],
}


def load(name, argv=None, values=None):
    """Returns (published module facade, cfg, model)."""
    facade = Version1() if name.startswith("v1") else Version2()
    cfg = facade.parse(name, argv) if values is None else facade.namespace(values)
    observations, actions = SPACES[name]
    torch.manual_seed(0)
    model = facade.make(cfg, facade.observation_space(observations), facade.action_space(actions))
    return facade, cfg, model


class Version1:
    settings = "cfg.json"

    def __init__(self):
        import gym
        from sample_factory.algorithms.appo.model import create_actor_critic
        from sample_factory.algorithms.appo.model_utils import get_hidden_size
        from sample_factory.families.doom.doom_model import register_models

        register_models()
        self.gym = gym
        self.make = create_actor_critic
        self.state_size = get_hidden_size

    def namespace(self, values):
        from sample_factory.utils.utils import AttrDict

        return AttrDict(values)

    def parse(self, name, argv):
        from sample_factory.algorithms.utils.arguments import parse_args

        return parse_args(
            [*argv, "--algo=APPO", f"--experiment={name}", "--device=cpu", "--train_dir=train_dir"]
        )

    def box(self, shape, dtype="float32"):
        low, high = (0, 255) if dtype == "uint8" else (-np.inf, np.inf)
        return self.gym.spaces.Box(low, high, shape, np.dtype(dtype))

    def observation_space(self, described):
        return self.gym.spaces.Dict(
            {
                key: self.box((of,)) if isinstance(of, int) else self.box(of[1], of[0])
                for key, of in described.items()
            }
        )

    def action_space(self, described):
        if isinstance(described, list):
            return self.gym.spaces.Tuple([self.action_space(part) for part in described])
        if isinstance(described, dict):
            return self.gym.spaces.Box(-1.0, 1.0, (described["box"],), np.float32)
        return self.gym.spaces.Discrete(described)

    def forward(self, model, observations, rnn_states):
        result = model({key: value.clone() for key, value in observations.items()}, rnn_states)
        return result.action_logits, result.values.reshape(-1), result.rnn_states

    def returns(self, model, values):
        return values


class Version2(Version1):
    settings = "config.json"

    def __init__(self):
        import gymnasium
        from sample_factory.algo.utils.context import global_model_factory
        from sample_factory.model.actor_critic import create_actor_critic
        from sample_factory.model.model_utils import get_rnn_size

        self.gym = gymnasium
        self.make = create_actor_critic
        self.state_size = get_rnn_size
        self.factory = global_model_factory()

    def make_doom(self):
        from sf_examples.vizdoom.doom.doom_model import make_vizdoom_encoder

        self.factory.register_encoder_factory(make_vizdoom_encoder)

    def namespace(self, values):
        from sample_factory.utils.attr_dict import AttrDict

        if values["env"].startswith("doom"):
            self.make_doom()
        return AttrDict(values)

    def parse(self, name, argv):
        from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args

        argv = [*argv, f"--experiment={name}", "--device=cpu", "--train_dir=train_dir"]
        parser, _ = parse_sf_args(argv)
        if name.startswith("v2_doom"):
            from sf_examples.vizdoom.doom.doom_params import add_doom_env_args, doom_override_defaults

            self.make_doom()
            add_doom_env_args(parser)
            doom_override_defaults(parser)
        if name == "v2_two_inputs":
            parser.set_defaults(obs_scale=3.0, obs_subtract_mean=0.25)
        parser.set_defaults(encoder_conv_mlp_layers=[8])
        return parse_full_cfg(parser, argv)

    def forward(self, model, observations, rnn_states):
        result = model(model.normalize_obs(observations), rnn_states)
        return result["action_logits"], result["values"].reshape(-1), result["new_rnn_states"]

    def returns(self, model, values):
        if model.returns_normalizer is None:
            return values
        values = values.clone()
        model.returns_normalizer(values, denormalize=True)
        return values


def random_observations(described, rng):
    arrays = {}
    for key, of in described.items():
        if isinstance(of, int):
            arrays[key] = rng.normal(size=(STEPS, ROWS, of)).astype(np.float32) * 2
        else:
            channels, height, width = of[1]
            blocks = rng.integers(0, 256, (STEPS, ROWS, channels, height // 4, width // 4))
            arrays[key] = blocks.repeat(4, axis=-1).repeat(4, axis=-2).astype(of[0])
    return arrays


def expected(facade, cfg, model, described):
    """Returns the arrays of expected.npz."""
    rng = np.random.default_rng(0)
    arrays = random_observations(described, rng)
    model.eval()
    state = torch.zeros(ROWS, facade.state_size(cfg))
    outputs = {"logits": [], "values": [], "returns": [], "rnn_states": []}
    with torch.no_grad():
        for t in range(STEPS):
            rows = {key: torch.from_numpy(array[t]) for key, array in arrays.items()}
            logits, values, state = facade.forward(model, rows, state)
            returns = facade.returns(model, values)
            for name, tensor in zip(outputs, (logits, values, returns, state)):
                outputs[name].append(tensor.clone().numpy())
    observed = {f"obs_{key}": array for key, array in arrays.items()}
    return {**observed, **{name: np.stack(steps) for name, steps in outputs.items()}}


def thin(checkpoint):
    """Sets most weights of large layers, and their moments, to zero."""
    generator = torch.Generator().manual_seed(0)
    names = [name for name in checkpoint["model"] if name.rpartition(".")[2] not in STATISTICS]
    for name, tensor in checkpoint["model"].items():
        if tensor.numel() <= LARGE:
            continue
        if name not in names:  # statistics of images: the same for each block of pixels
            tensor[...] = tensor.mean(dim=(1, 2), keepdim=True)
            continue
        keep = torch.rand(tensor.shape, generator=generator) < THIN
        tensor[...] = torch.where(keep, tensor * THIN**-0.5, 0.0)  # a product would leave signs of zeros
        moments = checkpoint["optimizer"]["state"].get(names.index(name), {})
        keep &= torch.rand(tensor.shape, generator=generator) < THIN
        for key in ("exp_avg", "exp_avg_sq"):
            if key in moments:
                moments[key] = torch.where(keep, moments[key], 0.0)


def write(name, settings_name, values, checkpoints, arrays):
    """checkpoints: name within the experiment folder -> contents."""
    OUT.mkdir(exist_ok=True)
    with tarfile.open(OUT / f"{name}.tar.xz", "w:xz", preset=9) as archive:

        def add(path, data):
            info = tarfile.TarInfo(path)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))

        values = {key: value for key, value in values.items() if key not in NOT_KEPT}
        add(f"{name}/{settings_name}", json.dumps({**values, "train_dir": "train_dir"}, indent=1).encode())
        for path, checkpoint in checkpoints.items():
            buffer = io.BytesIO()
            torch.save(checkpoint, buffer)
            add(f"{name}/{path}", buffer.getvalue())
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        add("expected.npz", buffer.getvalue())
    print(name, (OUT / f"{name}.tar.xz").stat().st_size)


def from_training(folder, is_thin=True):
    name = folder.name
    facade_settings = "cfg.json" if name.startswith("v1") else "config.json"
    values = json.loads((folder / facade_settings).read_text())
    facade, cfg, model = load(name, values=values)
    newest = [sorted(policy.glob("checkpoint_*.pth"))[-1:] for policy in sorted(folder.glob("checkpoint_p*"))]
    best = sorted(folder.glob("checkpoint_p0/best_*.pth"))[-1:]
    checkpoints = {}
    for path in [*best, *(path for paths in newest for path in paths)]:
        checkpoint = torch.load(path, map_location="cpu", weights_only=False)
        if is_thin:
            thin(checkpoint)
        checkpoints[str(path.relative_to(folder))] = checkpoint
    model.load_state_dict(checkpoints[str(newest[0][0].relative_to(folder))]["model"])
    arrays = expected(facade, cfg, model, SPACES[name][0])
    if not is_thin:
        np.savez(folder / "expected.npz", **arrays)
        return
    write(name, facade_settings, values, checkpoints, arrays)


def from_scratch(name):
    """A model of the published code after three steps of Adam towards random outputs."""
    facade, cfg, model = load(name, argv=MADE[name])
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    rng = np.random.default_rng(1)
    for _ in range(3):
        arrays = random_observations(SPACES[name][0], rng)
        rows = {key: torch.from_numpy(array[0]) for key, array in arrays.items()}
        model.train()  # statistics of observations change
        logits, values, _ = facade.forward(model, rows, torch.zeros(ROWS, facade.state_size(cfg)))
        optimizer.zero_grad()
        ((logits - 1).square().mean() + (values + 1).square().mean()).backward()
        optimizer.step()
    if name.startswith("v2"):
        model.returns_normalizer(torch.linspace(-3.0, 5.0, 7))
    state = {
        "train_step": 3,
        "env_steps": 96,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    if name.startswith("v2"):
        state.update(best_performance=np.float64(1.5), curr_lr=1e-4)
    thin(state)
    model.load_state_dict(state["model"])
    path = "checkpoint_p0/checkpoint_000000003_96.pth"
    write(
        name,
        facade.settings,
        dict(vars(cfg) or cfg),
        {path: state},
        expected(facade, cfg, model, SPACES[name][0]),
    )


if __name__ == "__main__":
    if sys.argv[1] == "made":
        from_scratch(sys.argv[2])
    else:
        from_training(Path(sys.argv[2]), is_thin=sys.argv[1] == "trained")

"""Lists the modules and names of versions 1 and 2 that have moved in this version, or do not exist."""

from collections.abc import Mapping

PAGE = "see sample_factory/config/MIGRATING.md"

RUNNING = "sample_factory.version_2.running"
PLAY_LOOP = "sample_factory.version_2.play_loop"
RUNNER = "sample_factory.version_2.runner"
CLASSES = "sample_factory.version_2.classes"
TB = "sample_factory.runner.start_tensorboard:main"
PROTOCOL = "sample_factory.envs.protocol"


BUILT_IN_ENVS = (
    "its envs and networks are built in: write --env=doom_..., atari_..., mujoco_...; "
    "see sample_factory/envs/README.md"
)
GRIDS = "grids of experiments are in sample_factory.runner, see sample_factory/runner/README.md"
# Commands that were modules at the top of the package before this version was released.
COMMANDS = "record export match imitate play_doom benchmark dummy_sampler"
V1_SCRIPT = "call sample_factory.train.main(argv), or sample_factory.run(env=..., **flags)"
V1_FLAGS = "give register_env a dataclass of flags: register_env(prefix, make_env, flags=...)"


def _in(module: str, *names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names}


def _all(names: str, target: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), target)


# Module, below sample_factory or of sf_examples -> name -> where it is here, as "module:attribute"; or a
# sentence that says what to write instead.
NAMES: Mapping[str, Mapping[str, str]] = {
    "cfg.arguments": {
        **_in(RUNNING, "parse_sf_args", "parse_full_cfg", "load_from_checkpoint"),
        "default_cfg": "call sample_factory.run(env=..., experiment=..., **flags) without a cfg",
        "checkpoint_override_defaults": "an existing experiment's cfg.json is read by itself",
    },
    "train": {**_in(RUNNER, "make_runner"), **_in(RUNNING, "run_rl")},
    "enjoy": dict.fromkeys(
        ("load_state_dict", "make_env", "render_frame", "visualize_policy_inputs"),
        "call sample_factory.load_policy(experiment), and act, make_env and render of what it returns",
    ),
    "envs.env_utils": {
        "register_env": "sample_factory.version_2.registration:register_env",
        "RewardShapingInterface": "sample_factory.envs.abilities:RewardShaping",
        "TrainingInfoInterface": "sample_factory.envs.abilities:TrainingInfo",
    },
    "algo.utils.context": {
        **_in(RUNNING, "global_model_factory"),
        "global_env_registry": "call sample_factory.register_env(name, make_env)",
    },
    "model.encoder": {
        # Also what the module imports: scripts write `from sample_factory.model.encoder import *`.
        **_in(CLASSES, "Encoder", "calc_num_elements", "create_mlp", "nonlinearity", "torch"),
        **_in("typing", "Dict", "List", "Optional"),
        **_in("torch", "nn", "Tensor"),
        **_all("Config ObsSpace", "typing:Any"),
        "spaces": "gymnasium:spaces",
        "log": "sample_factory.runtime.log:log",
        "make_img_encoder": "leave it out: pictures have an encoder without it, see --encoder_subtype",
    },
    "model.model_utils": {
        **_in(CLASSES, "create_mlp", "fc_layer", "nonlinearity"),
        **_in(PLAY_LOOP, "get_rnn_size"),
    },
    "model.core": {
        "ModelCore": "derive from torch.nn.Module, and call sample_factory.register_core(name, factory)"
    },
    "model.decoder": {
        "Decoder": "derive from torch.nn.Module, and call sample_factory.register_decoder(name, factory)"
    },
    "model.actor_critic": {
        "ActorCritic": f"{PLAY_LOOP}:PlayedActorCritic",
        **_in(PLAY_LOOP, "create_actor_critic"),
    },
    "algo.utils.torch_utils": _in(CLASSES, "calc_num_elements"),
    "algo.utils.gymnasium_utils": {
        "convert_space": "sample_factory.envs.adapters.old_gym:to_gymnasium",
        "patch_non_gymnasium_env": "return the env itself from make_env: envs of the old gym are adapted",
    },
    "algo.utils.tensor_dict": _in(CLASSES, "TensorDict"),
    "algo.utils.running_mean_std": _in(CLASSES, "RunningMeanStdInPlace"),
    "algo.utils.misc": _in(RUNNING, "ExperimentStatus"),
    "algo.utils.rl_utils": {
        **_in(PLAY_LOOP, "prepare_and_normalize_obs"),
        **_in(CLASSES, "make_dones"),
    },
    "algo.utils.tensor_utils": _in(CLASSES, "unsqueeze_tensor"),
    "algo.utils.action_distributions": {
        **_in(PLAY_LOOP, "argmax_actions"),
        **_in(CLASSES, "ContinuousActionDistribution"),
    },
    "algo.utils.env_info": _in(PLAY_LOOP, "EnvInfo", "extract_env_info"),
    "algo.sampling.batched_sampling": _in(PLAY_LOOP, "preprocess_actions"),
    "algo.learning.learner": _in(PLAY_LOOP, "Learner"),
    "algo.utils.spaces.discretized": {"Discretized": "sample_factory.spaces.actions:Discretized"},
    "algo.utils.make_env": {
        **_in(PLAY_LOOP, "make_env_func_batched"),
        **_in("sample_factory.version_2.play_loop", "BatchedVecEnv"),
    },
    "algo.runners.runner": _in(RUNNER, "AlgoObserver", "Runner"),
    "envs.create_env": _in(PLAY_LOOP, "create_env"),
    "envs.env_wrappers": {},
    "envs.pettingzoo_envs": {"PettingZooParallelEnv": "return the ParallelEnv itself from make_env"},
    "utils.utils": {
        "log": "sample_factory.runtime.log:log",
        "str2bool": "sample_factory.config.flag_parser:parse_bool",
        "is_module_available": "sample_factory.envs.packages:is_installed",
        **_in(PROTOCOL, "AttrDict"),
        **_in(RUNNING, "debug_log_every_n", "ensure_dir_exists", "experiment_dir"),
    },
    "utils.typing": {
        **_all("Config ObsSpace ActionSpace Env PolicyID Device CreateEnvFunc", "typing:Any"),
        **_all("MpQueue MpLock InitModelData ActionDistribution", "typing:Any"),
        "StatusCode": "builtins:int",
    },
    "utils.attr_dict": _in(PROTOCOL, "AttrDict"),
    "utils.timing": _in(CLASSES, "Timing"),
    "launcher.launcher_utils": _in(RUNNING, "seeds"),
    "launcher.run_description": {
        name: f"sample_factory.runner.run_description:{name}"
        for name in ("Experiment", "ParamGrid", "ParamList", "RunDescription")
    },
    "launcher.run": {"main": "sample_factory.runner.run:main"},
    "utils.tb": {"main": TB},
    "huggingface.push_to_hub": {"main": "sample_factory.hub.push_to_hub:main"},
    "huggingface.load_from_hub": {"main": "sample_factory.hub.load_from_hub:main"},
    "sf_examples.vizdoom.doom.doom_model": {
        **_in(RUNNING, "make_vizdoom_encoder"),
        "VizdoomEncoder": "write --encoder_custom=vizdoom, or register_encoder for one of your own",
    },
    "sf_examples.vizdoom.doom.doom_params": _in(
        RUNNING, "add_doom_env_args", "add_doom_env_eval_args", "doom_override_defaults"
    ),
    "sf_examples.vizdoom.doom.doom_utils": {
        **_in(RUNNING, "DOOM_ENVS", "make_doom_env_from_spec"),
        "DoomSpec": "see sample_factory/families/doom/README.md, A scenario of your own",
    },
    "sf_examples.vizdoom.train_vizdoom": _in(RUNNING, "register_vizdoom_components", "parse_vizdoom_cfg"),
    "sf_examples.mujoco.train_mujoco": _in(RUNNING, "register_mujoco_components", "parse_mujoco_cfg"),
    "sf_examples.atari.train_atari": _in(RUNNING, "register_atari_components", "parse_atari_args"),
    # Version 1
    "run_algorithm": {"run_algorithm": V1_SCRIPT, **_in("sample_factory.version_2.run_algorithm", "main")},
    "tb": {"main": TB, "tb_version": "call main(argv)"},
    "algorithms.utils.arguments": {"parse_args": V1_SCRIPT, "arg_parser": V1_FLAGS},
    "algorithms.appo.model_utils": {
        "register_custom_encoder": "call sample_factory.register_encoder(name, factory)",
        "EncoderBase": "derive from torch.nn.Module, with an attribute out_size",
    },
    "algorithms.appo.train_appo": {"main": "sample_factory.train:main"},
    "algorithms.appo.enjoy_appo": {
        "enjoy": "call sample_factory.enjoy.main(argv)",
        "main": "sample_factory.enjoy:main",
    },
    "envs.dmlab.dmlab_env": _all(
        "DMLAB_INITIALIZED DMLAB_ENVS DmLabSpec dmlab_env_by_name dmlab_extra_episodic_stats_processing "
        "dmlab_extra_summaries ensure_initialized get_dataset_path get_task_id make_dmlab_env "
        "make_dmlab_env_impl list_all_levels_for_experiment task_id_to_level",
        BUILT_IN_ENVS,
    ),
}
# Modules that are here only as a sentence about what to write instead.
MODULES: Mapping[str, str] = {
    **dict.fromkeys(("launcher", "runner"), GRIDS),
    "huggingface": "call load_from_hub of sample_factory.hub.load_from_hub, and main of "
    "sample_factory.hub.push_to_hub; see sample_factory/hub/README.md",
    **{name: f"write python -m sample_factory {name}" for name in COMMANDS.split()},
    "eval": "call sample_factory.evaluate(experiment, num_episodes=...), or write "
    "python -m sample_factory eval",
    "export_onnx": "call sample_factory.export_onnx(experiment, path), or python -m sample_factory export",
    "pbt": "population-based training is switched on by --with_pbt=True",
    **dict.fromkeys(("algorithms", "cfg", "model", "utils"), PAGE),
    **dict.fromkeys(
        ("algo.utils", "algo.runners", "algo.sampling", "algo.learning", "algo.evaluators"), PAGE
    ),
    **dict.fromkeys(("envs.env_config", "envs.env_utils", "envs.env_wrappers", "envs.ray_envs"), PAGE),
    "envs.doom": "Doom is built in: write --env=doom_...; for a scenario of your own, see "
    "sample_factory/families/doom/README.md",
    **dict.fromkeys(("envs.atari", "envs.dmlab", "envs.minigrid", "envs.mujoco"), BUILT_IN_ENVS),
    "sf_examples": BUILT_IN_ENVS,
    "sample_factory_examples": "write --env=gym_ID for an id of Gymnasium; an env or a network of your own: "
    "examples/custom_env.py, and sample_factory/envs/README.md",
}

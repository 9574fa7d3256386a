"""Modules and names of versions 1 and 2 that have another place here, or none."""

from collections.abc import Mapping

PAGE = "see sample_factory/config/README.md, Coming from Sample Factory 1 or 2"

# Module -> name -> where it is here, as "module:attribute"; or a sentence that says what to write instead.
NAMES: Mapping[str, Mapping[str, str]] = {
    "cfg.arguments": {
        "parse_sf_args": "sample_factory.version_2.running:parse_sf_args",
        "parse_full_cfg": "sample_factory.version_2.running:parse_full_cfg",
        "default_cfg": "call sample_factory.run(env=..., experiment=..., **flags) without a cfg",
        "load_from_checkpoint": "sample_factory.load_policy(experiment) reads cfg.json itself",
        "checkpoint_override_defaults": "an existing experiment's cfg.json is read by itself",
    },
    "train": {
        "make_runner": "call sample_factory.run(env=..., experiment=..., **flags); for a runner's observers, "
        "sample_factory.register_observer(name, factory)",
        "run_rl": "sample_factory.version_2.running:run_rl",
    },
    "eval": {"do_eval": "call sample_factory.evaluate(experiment, num_episodes=...)"},
    "envs.env_utils": {
        "register_env": "sample_factory.envs.env_registry:register_env",
        "RewardShapingInterface": "sample_factory.envs.abilities:RewardShaping",
        "TrainingInfoInterface": "sample_factory.envs.abilities:TrainingInfo",
    },
    "algo.utils.context": {
        "global_model_factory": "sample_factory.version_2.running:global_model_factory",
        "global_env_registry": "call sample_factory.register_env(name, make_env)",
    },
    "model.encoder": {
        "Encoder": "sample_factory.version_2.encoder:Encoder",
        "make_img_encoder": "leave it out: pictures have an encoder without it, see --encoder_subtype",
    },
    "model.model_utils": {"nonlinearity": "sample_factory.version_2.encoder:nonlinearity"},
    "model.core": {
        "ModelCore": "derive from torch.nn.Module, and call sample_factory.register_core(name, factory)"
    },
    "model.decoder": {
        "Decoder": "derive from torch.nn.Module, and call sample_factory.register_decoder(name, factory)"
    },
    "model.actor_critic": {
        "ActorCritic": "derive from sample_factory.models.actor_critic.ActorCritic, and call "
        "sample_factory.register_actor_critic(name, factory)"
    },
    "algo.utils.torch_utils": {"calc_num_elements": "sample_factory.version_2.encoder:calc_num_elements"},
    "algo.utils.misc": {"ExperimentStatus": "sample_factory.version_2.running:ExperimentStatus"},
    "algo.utils.spaces.discretized": {"Discretized": "sample_factory.spaces.actions:Discretized"},
    "algo.utils.make_env": {
        "make_env_func_batched": "call sample_factory.load_policy(experiment).make_env()"
    },
    "algo.runners.runner": {
        "AlgoObserver": "derive from sample_factory.Observer, and call sample_factory.register_observer",
        "Runner": "call sample_factory.run(env=..., experiment=..., **flags)",
    },
    "envs.create_env": {"create_env": "call sample_factory.load_policy(experiment).make_env()"},
    "envs.env_wrappers": {},
    "envs.pettingzoo_envs": {"PettingZooParallelEnv": "return the ParallelEnv itself from make_env"},
    "utils.utils": {
        "log": "sample_factory.runtime.log:log",
        "str2bool": "sample_factory.config.flags:parse_bool",
    },
    "utils.typing": dict.fromkeys(
        ("Config", "ObsSpace", "ActionSpace", "Env", "PolicyID", "CreateEnvFunc", "Device"), "typing:Any"
    ),
    "utils.attr_dict": {"AttrDict": "use types.SimpleNamespace, or a dict"},
    "launcher.run_description": {
        name: f"sample_factory.runner.run_description:{name}"
        for name in ("Experiment", "ParamGrid", "ParamList", "RunDescription")
    },
    "launcher.run": {"main": "sample_factory.runner.run:main"},
    "utils.tb": {"main": "sample_factory.tb:main"},
    "huggingface.push_to_hub": {"main": "sample_factory.hub.push_to_hub:main"},
    "huggingface.load_from_hub": {"main": "sample_factory.hub.load_from_hub:main"},
    # Version 1
    "algorithms.utils.arguments": {
        "parse_args": "call sample_factory.train.main(argv), or sample_factory.run(env=..., **flags)",
        "arg_parser": "give register_env a dataclass of flags: register_env(prefix, make_env, flags=...)",
    },
    "algorithms.appo.model_utils": {
        "register_custom_encoder": "call sample_factory.register_encoder(name, factory)",
        "EncoderBase": "derive from torch.nn.Module, with an attribute out_size",
    },
    "algorithms.appo.train_appo": {"main": "sample_factory.train:main"},
    "algorithms.appo.enjoy_appo": {
        "enjoy": "call sample_factory.enjoy.main(argv)",
        "main": "sample_factory.enjoy:main",
    },
}
# Modules that are here only as a sentence about what to write instead.
MODULES: Mapping[str, str] = {
    "launcher": "grids of experiments are in sample_factory.runner, see sample_factory/runner/README.md",
    "huggingface": "call load_from_hub of sample_factory.hub.load_from_hub, and main of "
    "sample_factory.hub.push_to_hub; see sample_factory/hub/README.md",
    "export_onnx": "call sample_factory.export_onnx(experiment, path), or python -m sample_factory.export",
    "pbt": "population-based training is switched on by --with_pbt=True",
    "algorithms": PAGE,
    "cfg": PAGE,
    "model": PAGE,
    "utils": PAGE,
    "algo.utils": PAGE,
    "algo.runners": PAGE,
    "algo.sampling": PAGE,
    "algo.learning": PAGE,
}

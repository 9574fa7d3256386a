"""Classes of flags: those of a class are parsed, checked and trusted by the same code."""

from collections.abc import Iterator

from sample_factory.config.flags import NEVER, section_fields
from sample_factory.config.sections import TRAINING_SECTIONS
from sample_factory.config.trust import SERVICES
from sample_factory.envs.env_registry import resolve_family
from tests.config.declared_commands import DECLARED

# One env of each family with flags of its own.
ENVS = ("doom_basic", "gym_CartPole-v1", "envpool_CartPole-v1", "pettingzoo_butterfly.pistonball_v6")
ENVS += ("dmlab_30", "minigrid_Empty-5x5-v0", "mujoco_ant", "atari_pong", "generals_8x8", "procgen_coinrun")
ENVS += ("football_academy_corner",)
OWN = (section for command in DECLARED if command.experiment for section in command.sections.values())
SHARED = (*TRAINING_SECTIONS.values(), *OWN)


def flags() -> Iterator[tuple]:
    """Yields (section, field, type) of every flag of this package."""
    families = (resolve_family(env).flags for env in ENVS)
    for section in dict.fromkeys([*SHARED, *filter(None, families)]):
        for field, kind in section_fields(section):
            yield section, field, kind


def class_of(field, kind) -> str:
    """Returns the type of a flag, and what its value stands for."""
    data = field.metadata
    shape = " list" if kind.is_list else " or None" if kind.is_optional else ""
    is_place = data["metavar"] in ("FILE", "FOLDER", "RUN")
    use = "code" if data["names_code"] else data["metavar"] if is_place else ""
    use = "service" if field.name in SERVICES else use or ("choice" if data["choices"] else "")
    return f"{kind.scalar.__name__}{shape} {'limit' if field.default == NEVER else use}".strip()


# A flag of each class, and those that code mentions by name.
REPRESENTATIVES = {
    "bool": "serial_mode",
    "bool or None": "doom_grey",
    "bool service": "with_wandb",
    "float": "gamma",
    "float or None": "weights_sync_threshold",
    "int": "batch_size",
    "int limit": "train_for_env_steps",
    "int list": "encoder_mlp_layers",
    "int or None": "num_envs_per_worker",
    "str": "save_best_metric",
    "str FILE": "video_name",
    "str FOLDER": "train_dir",
    "str choice": "rnn_type",
    "str code": "matchmaking",
    "str service": "wandb_project",
    "str list": "normalize_input_keys",
    "str list FILE": "checkpoint",
    "str list code": "observers",
    "str or None": "wandb_group",
    "str or None FILE": "figures_file",
    "str or None FOLDER": "wandb_dir",
    "str or None RUN": "transfer_from",
    "str or None code": "encoder_custom",
    "str or None service": "ray_address",
}
BY_NAME = ("env", "algo", "cfg", "env_kwargs", "eval_flags", "experiment", "experiments_root", "trust_code")
BY_NAME += ("restart_behavior", "export_path", "hf_repository", "json")

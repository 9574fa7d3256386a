"""The families of envs in this package: an entry for each. Plain data; the modules are imported when used."""

from typing import NamedTuple


class BuiltIn(NamedTuple):
    """A family of this package, as the registry, the help and the error for an unknown name need it.

    prefix: how the names of its envs begin. rest: what follows, as the help shows it.
    module: below `sample_factory.envs`; its FAMILY, a `FamilyParts`, is all the rest.
    about: one phrase for the help; "" hides the family there.
    packages: optional packages of which one has to be installed, if there are any.
    extra: the X in `pip install -e '.[X]'` that installs them.
    """

    prefix: str
    rest: str
    module: str
    about: str
    packages: tuple[str, ...] = ()
    extra: str | None = None


BUILT_IN = (
    BuiltIn(
        "doom_",
        "NAME",
        "doom.doom_family",
        "Doom, e.g. doom_basic, doom_battle, doom_duel; --env=doom lists all of them",
    ),
    BuiltIn(
        "atari_",
        "GAME",
        "atari.atari_family",
        "Atari, e.g. atari_pong, atari_breakout; --env=atari lists all games",
    ),
    BuiltIn(
        "mujoco_",
        "NAME",
        "mujoco_family",
        "MuJoCo, e.g. mujoco_ant, mujoco_halfcheetah",
        ("envpool", "mujoco"),
        "envpool,mujoco",
    ),
    BuiltIn(
        "minigrid_",
        "ID",
        "minigrid_family",
        "MiniGrid and BabyAI, e.g. minigrid_DoorKey-5x5-v0",
        ("minigrid", "envpool"),
        "minigrid",
    ),
    # Names of version 1.
    BuiltIn("MiniGrid-", "ID", "minigrid_family", "", ("minigrid", "envpool"), "minigrid"),
    BuiltIn("procgen_", "GAME", "procgen_family", "Procgen, e.g. procgen_coinrun", ("envpool",), "envpool"),
    BuiltIn(
        "football_",
        "SCENARIO",
        "football_family",
        "Google Research Football, e.g. football_academy_run_to_score",
        ("envpool",),
        "envpool",
    ),
    BuiltIn(
        "generals_",
        "MAP",
        "generals.generals_family",
        "Generals, e.g. generals_8x8, generals_1v1",
        ("generals",),
        "generals",
    ),
    BuiltIn(
        "envpool_",
        "ID",
        "envpool_family",
        "any env of EnvPool, e.g. envpool_Pong-v5",
        ("envpool",),
        "envpool",
    ),
    BuiltIn(
        "gym_",
        "ID",
        "gym_family",
        "any Gymnasium id, e.g. gym_CartPole-v1; gym_MODULE:ID imports MODULE first",
    ),
    BuiltIn(
        "dmlab_",
        "LEVEL",
        "dmlab.dmlab_family",
        "DeepMind Lab, built by yourself, e.g. dmlab_30, dmlab_rooms_watermaze",
    ),
    BuiltIn(
        "pettingzoo_",
        "MODULE",
        "pettingzoo_family",
        "a parallel env of PettingZoo, e.g. pettingzoo_butterfly.pistonball_v6",
        ("pettingzoo",),
        "pettingzoo",
    ),
)

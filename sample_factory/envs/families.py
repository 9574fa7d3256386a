"""The families of envs in this package: an entry for each. Plain data; the modules are imported when used."""

import string
from typing import NamedTuple


class BuiltIn(NamedTuple):
    """A family of this package, as the registry, the help and the error for an unknown name need it.

    name: of its envs, as the help shows it: the prefix, then capital letters for what follows.
    module: below `sample_factory.envs`; its FAMILY, a `FamilyParts`, is all the rest.
    about: one phrase for the help; "" hides the family there.
    extra: the X in `pip install -e '.[X]'` that installs what the family needs; "": nothing is optional.
    packages: one of them has to be installed; by default those that `extra` names.
    """

    name: str
    module: str
    about: str
    extra: str = ""
    packages: tuple[str, ...] = ()

    @property
    def prefix(self) -> str:
        """How the names of its envs begin."""
        return self.name.rstrip(string.ascii_uppercase)

    @property
    def needed(self) -> tuple[str, ...]:
        """Packages of which one has to be installed; empty: none."""
        return self.packages or tuple(filter(None, self.extra.split(",")))


DOOM = "Doom, e.g. doom_basic, doom_battle, doom_duel; --env=doom lists all of them"
ATARI = "Atari, e.g. atari_pong, atari_breakout; --env=atari lists all games"
FOOTBALL = "Google Research Football, e.g. football_academy_run_to_score"
GYM = "any Gymnasium id, e.g. gym_CartPole-v1; gym_MODULE:ID imports MODULE first"
DMLAB = "DeepMind Lab, built by yourself, e.g. dmlab_30, dmlab_rooms_watermaze"
PETTINGZOO = "a parallel env of PettingZoo, e.g. pettingzoo_butterfly.pistonball_v6"
MINIGRID = "MiniGrid and BabyAI, e.g. minigrid_DoorKey-5x5-v0"

BUILT_IN = (
    BuiltIn("doom_NAME", "doom.doom_family", DOOM),
    BuiltIn("atari_GAME", "atari.atari_family", ATARI),
    BuiltIn("mujoco_NAME", "mujoco_family", "MuJoCo, e.g. mujoco_ant, mujoco_halfcheetah", "envpool,mujoco"),
    BuiltIn("minigrid_ID", "minigrid_family", MINIGRID, "minigrid", ("minigrid", "envpool")),
    BuiltIn("MiniGrid-ID", "minigrid_family", "", "minigrid", ("minigrid", "envpool")),  # of version 1
    BuiltIn("procgen_GAME", "procgen_family", "Procgen, e.g. procgen_coinrun", "envpool"),
    BuiltIn("football_SCENARIO", "football_family", FOOTBALL, "envpool"),
    BuiltIn(
        "generals_MAP", "generals.generals_family", "Generals, e.g. generals_8x8, generals_1v1", "generals"
    ),
    BuiltIn("envpool_ID", "envpool_family", "any env of EnvPool, e.g. envpool_Pong-v5", "envpool"),
    BuiltIn("gym_ID", "gym_family", GYM),
    BuiltIn("dmlab_LEVEL", "dmlab.dmlab_family", DMLAB),
    BuiltIn("pettingzoo_MODULE", "pettingzoo_family", PETTINGZOO, "pettingzoo"),
)

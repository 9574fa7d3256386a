"""Trains on your own Doom scenario: a .cfg file, a DoomSpec, and a flag.

    python examples/custom_doom_scenario.py train --experiment=turret
    python examples/custom_doom_scenario.py enjoy --experiment=turret

turret.cfg sets the map, the buttons and the rewards. Your own map (.wad) is found if it is in the folder of
the .cfg. The reward of an episode rises from -0.2 to 0.7 in the first 130,000 frames, half a minute on two
cores.
"""

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sample_factory import register_env
from sample_factory.config.flags import flag
from sample_factory.enjoy import main as enjoy
from sample_factory.families.doom.action_spaces import Press
from sample_factory.families.doom.doom_family import DoomFlags, DoomSpec, doom_defaults
from sample_factory.families.doom.make_doom_env import make_doom_env
from sample_factory.train import main as train

ENV = "my_turret"
TICS_PER_SECOND = 35

SPEC = DoomSpec(
    name=ENV,
    scenario=str(Path(__file__).resolve().with_name("turret.cfg")),
    # One choice for each group of buttons, in the order of the .cfg: no turn, left or right; no shot or a
    # shot. So the agent can shoot while it turns; with flat(4) it would press one button at a time.
    actions=(Press(3), Press(2)),
    reward_scale=0.01,
)


@dataclass(frozen=True)
class TurretFlags(DoomFlags):
    """Flags of every Doom env, and one more."""

    turret_seconds: float = flag(8.0, "game time in which the monster has to be hit", above=0)


def make_turret(full_env_name: str, cfg, env_config=None, render_mode: str | None = None):
    """In a rollout worker: makes one env."""
    limit = round(cfg.turret_seconds * TICS_PER_SECOND)
    spec = dataclasses.replace(SPEC, time_limit_frames=limit)
    return make_doom_env(full_env_name, cfg, env_config, render_mode, spec)


def turret_defaults(full_env_name: str) -> dict[str, Any]:
    """Returns the defaults of all Doom envs (encoder, frameskip, ...), and some for a short run."""
    own = {"num_envs_per_worker": 8, "batch_size": 512, "train_for_env_steps": 500_000}
    return {**doom_defaults(full_env_name), **own}


def main(argv: list[str]) -> int:
    """Runs a command. argv: `train` or `enjoy`, then flags. Returns the exit code."""
    register_env("my_turret", make_turret, TurretFlags, turret_defaults, follows_observation=False)
    commands = {"train": train, "enjoy": enjoy}
    if not argv or argv[0] not in commands:
        print(f"usage: python {sys.argv[0]} train|enjoy --experiment=NAME [flags]", file=sys.stderr)
        return 2
    return commands[argv[0]]([f"--env={ENV}", *argv[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

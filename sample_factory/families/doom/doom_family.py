"""The `doom_` family as plain data: spec of each env, flags of the family, defaults of other flags."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sample_factory.config.flags import ConfigError, Not, flag, shortened
from sample_factory.envs.env_family import FamilyParts
from sample_factory.families.doom.action_spaces import (
    BASIC,
    DISCRETIZED_NO_WEAPON,
    EXTENDED,
    FULL,
    FULL_WITH_USE,
    HYBRID,
    TURN_AND_ATTACK,
    ActionGroups,
    flat,
)
from sample_factory.families.doom.shaping_schemes import AGAINST_BOTS, BATTLE, SELF_PLAY, parse_shaping
from sample_factory.runtime.cpu import num_usable_cores

SCENARIOS_FOLDER = Path(__file__).parent / "scenarios"
TICS_PER_MINUTE = 60 * 35
BUFFERS = ("depth", "labels", "automap")
MAX_SKILL = 5


# The engine's console variables in a match, unless MatchSpec.settings says otherwise.
MATCH_SETTINGS: Mapping[str, float] = {
    "sv_forcerespawn": 1,
    "sv_noautoaim": 1,
    "sv_respawnprotect": 1,
    "sv_spawnfarthest": 1,
    "sv_nocrouch": 1,
    "sv_nojump": 1,
    "sv_nofreelook": 1,
    "sv_noexit": 1,
}


class MatchSpec(NamedTuple):
    """Players, rules and duration of a game of several players. Flags can override players and minutes.

    Each agent has an engine, and the first engine is the host; humans bring their own engines.

    start_bot_difficulty: 0 to 150, see BotDifficulty; None: the assorted bots that come with the engine.
    deathmatch: False: the players cooperate. They start where the map has starts for players 1 to 8, and
        frags and places are not counted.
    settings: values of the engine's variables sv_..., which override or extend MATCH_SETTINGS. With
        sv_forcerespawn=0, a dead player respawns when it presses USE; without this button, or with
        sv_norespawn=1, a player's death ends its episode. In cooperation, players can always leave a level
        that has an exit, which ends the episode of all players. Set sv_noexit=0 for such a level, so that
        each tic is drawn: otherwise the engine loses the rewards of the tics before the exit.
    """

    num_agents: int
    num_bots: int
    minutes: float = 4.0
    respawn_delay_seconds: int = 0
    num_humans: int = 0
    start_bot_difficulty: int | None = None
    deathmatch: bool = True
    settings: Mapping[str, float] = {}

    @property
    def rules(self) -> Mapping[str, float]:
        """The values of the engine's variables sv_..., by name: `settings` over MATCH_SETTINGS."""
        return {**MATCH_SETTINGS, **self.settings}

    def can_respawn(self, has_use: bool) -> bool:
        """Returns whether a dead player can respawn under the rules. has_use: whether players have the button
        USE."""
        return not self.rules.get("sv_norespawn") and bool(self.rules["sv_forcerespawn"] or has_use)

    @property
    def num_engines(self) -> int:
        return self.num_agents + self.num_humans

    @property
    def tics(self) -> int:
        """The length of a match in tics, which are env frames."""
        return round(self.minutes * TICS_PER_MINUTE)

    @property
    def has_several_engines(self) -> bool:
        return self.num_engines > 1


@dataclass(frozen=True)
class DoomSpec:
    """Describes one env: its scenario, actions, rewards, match rules and observations.

    scenario: the .cfg file; a relative path is relative to this package's scenarios folder. Its .wad is
        searched for in --doom_scenarios_dir, then in the folder that the .cfg names, then in the installed
        packages.
    actions: groups of buttons that match the .cfg's buttons one for one.
    reward_scale: factor applied last to the training reward.
    time_limit_frames: number of env frames (tics) after which the episode is truncated, unless the .cfg has a
        shorter limit.
    measurements: whether the observation has the vector of `observation.MEASUREMENTS` besides the picture;
        see `measured_variables`.
    shaping: scheme of `VariableShaping`; its rewards are added to the engine's. The scheme may name variables
        that the .cfg does not list.
    cost: scheme of `VariableShaping`; the sum of its terms in a step is the step's `info["cost"]`.
    reward_healing: adds 1 to the reward of every step in which the health rose.
    objective: what an episode is judged by, reported as `true_objective`: the engine's unshaped return, the
        frags, or 1 for a match won; None: the engine's return times reward_scale.
    match: rules of a multiplayer game; None: a game with a single player.
    goal: what a player should do, a sentence for humans.
    wad: file with the maps, in place of the one that the .cfg names; a .cfg that names none plays the maps of
        the game itself.
    doom_map: name of the map. doom_skill: difficulty, 1 (easy) to 5. iwad: file of the game itself, such as
        doom2.wad. None: as in the .cfg, or ViZDoom's default.
    variables: names of game variables that are observed, unscaled, as the entry "variables". A fixed-point
        number in USER1 to USER60 is 65,536 times as large as in the map's script.
    buffers: further pictures that are observed, as entries of these names; see BUFFERS. Labels number the
        objects in view, 0 to 255: the number of an object changes with what else is in view.
    grey: whether pictures are grey, [1, height, width], instead of coloured.
    """

    name: str
    scenario: str
    actions: ActionGroups
    reward_scale: float = 1.0
    time_limit_frames: int | None = None
    measurements: bool = False
    shaping: Mapping[str, Any] | None = None
    cost: Mapping[str, Any] | None = None
    reward_healing: bool = False
    objective: Literal["engine_return", "frags", "match_won"] | None = None
    match: MatchSpec | None = None
    goal: str = ""
    wad: str | None = None
    doom_map: str | None = None
    doom_skill: int | None = None
    iwad: str | None = None
    variables: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    grey: bool = False

    def __post_init__(self) -> None:
        for name in self.buffers:
            if name not in BUFFERS:
                raise ValueError(f"{self.name}: the buffers are {', '.join(BUFFERS)}; there is no {name}")

    def scenario_path(self) -> Path:
        """Returns the absolute path of the scenario's .cfg. Raises FileNotFoundError if it does not exist."""
        path = (SCENARIOS_FOLDER / Path(self.scenario).expanduser()).resolve()
        if not path.is_file():
            raise FileNotFoundError(f"{self.name}: there is no scenario file {path}")
        return path


MONSTER = "Kill the monster quickly, with few shots: step sideways until you face it."
COLORS = "Survive: objects of one colour heal, those of the other one hurt."
CENTER = "Kill as many monsters as you can with 26 bullets, before they reach you."
FRAGS = "Kill the other players more often than they kill you."
CORRIDOR = "Reach the green vest at the end of the corridor, past six enemies."
LINE = "Kill as many monsters as you can; they get stronger."
ACID = "Survive on the acid floor: pick up first-aid kits"
MONSTERS = "Kill as many monsters as you can in a minute."

_DUEL = MatchSpec(2, 0, respawn_delay_seconds=2)
_DUEL_WITH_BOT = MatchSpec(1, 1, respawn_delay_seconds=2)
_FULL_MATCH = MatchSpec(4, 4, respawn_delay_seconds=2)
_GATHERING: Mapping[str, Any] = {"reward_healing": True, "objective": "engine_return"}
# Without a reward on the way, the vest is not found in four million frames.
_HOME: Mapping[str, Any] = {
    "shaping": {"first_visit": 0.01},
    "objective": "engine_return",
    "goal": "Find the green vest in one of the rooms.",
}
_BATTLE: Mapping[str, Any] = {
    "actions": DISCRETIZED_NO_WEAPON,
    "time_limit_frames": 2100,
    "measurements": True,
    "shaping": BATTLE,
    "objective": "engine_return",
    "goal": "Kill as many monsters as you can in a minute; pick up first-aid and ammunition.",
}
_AGAINST_BOTS: Mapping[str, Any] = {
    "measurements": True,
    "shaping": AGAINST_BOTS,
    "objective": "frags",
    "goal": FRAGS,
}
_SELF_PLAY: Mapping[str, Any] = {**_AGAINST_BOTS, "shaping": SELF_PLAY, "objective": "match_won"}

_SPECS = (
    DoomSpec("doom_basic", "basic.cfg", flat(4), reward_scale=0.01, time_limit_frames=300, goal=MONSTER),
    DoomSpec("doom_two_colors_easy", "two_colors_easy.cfg", BASIC, goal=COLORS, **_GATHERING),
    DoomSpec("doom_two_colors_hard", "two_colors_hard.cfg", BASIC, goal=COLORS, **_GATHERING),
    DoomSpec("doom_dm", "cig.cfg", HYBRID, match=MatchSpec(8, 0), **_SELF_PLAY),
    DoomSpec("doom_dwango5", "dwango5_dm.cfg", HYBRID, match=MatchSpec(8, 0), **_SELF_PLAY),
    DoomSpec("doom_my_way_home_flat_actions", "my_way_home.cfg", flat(5), **_HOME),
    DoomSpec("doom_defend_the_center_flat_actions", "defend_the_center.cfg", flat(4), goal=CENTER),
    DoomSpec("doom_my_way_home", "my_way_home.cfg", BASIC, **_HOME),
    DoomSpec("doom_deadly_corridor", "deadly_corridor.cfg", EXTENDED, reward_scale=0.01, goal=CORRIDOR),
    DoomSpec("doom_defend_the_center", "defend_the_center.cfg", TURN_AND_ATTACK, goal=CENTER),
    DoomSpec("doom_defend_the_line", "defend_the_line.cfg", TURN_AND_ATTACK, goal=LINE),
    DoomSpec("doom_health_gathering", "health_gathering.cfg", flat(5), goal=f"{ACID}.", **_GATHERING),
    DoomSpec(
        "doom_health_gathering_supreme",
        "health_gathering_supreme.cfg",
        flat(5),
        goal=f"{ACID}, avoid the poison.",
        **_GATHERING,
    ),
    DoomSpec("doom_battle", "battle_continuous_turning.cfg", **_BATTLE),
    DoomSpec("doom_battle2", "battle2_continuous_turning.cfg", **_BATTLE),
    DoomSpec("doom_duel_bots", "ssl2.cfg", FULL_WITH_USE, match=_DUEL_WITH_BOT, **_AGAINST_BOTS),
    DoomSpec(
        "doom_deathmatch_bots",
        "dwango5_dm_continuous_weap.cfg",
        FULL,
        match=MatchSpec(1, 7),
        **_AGAINST_BOTS,
    ),
    DoomSpec("doom_duel", "ssl2.cfg", FULL_WITH_USE, match=_DUEL, **_SELF_PLAY),
    DoomSpec("doom_deathmatch_full", "freedm.cfg", FULL_WITH_USE, match=_FULL_MATCH, **_SELF_PLAY),
    DoomSpec("doom_benchmark", "battle.cfg", flat(9), time_limit_frames=2100, goal=MONSTERS),
)

DOOM_SPECS: Mapping[str, DoomSpec] = {spec.name: spec for spec in _SPECS}
# A scenario of the user's own may be a match.
IN_MATCHES = {"env": Not(name for name, spec in DOOM_SPECS.items() if spec.match is None)}
WITHOUT_LEVELS = {"doom_levels": ((),)}  # which have a file and a map each


@dataclass(frozen=True)
class DoomFlags:
    """The command-line flags that only the `doom_` envs have."""

    num_agents: int = flag(
        -1,
        "number of agents in a multiplayer game; -1: as the env defines",
        at_least=-1,
        at_most=16,
        only_with=IN_MATCHES,
    )
    num_humans: int = flag(
        0, "number of humans for whom a match waits; they join it with play_doom", at_least=0, at_most=16
    )
    num_bots: int = flag(
        -1,
        "number of scripted opponents; -1: as the env defines",
        at_least=-1,
        at_most=16,
        only_with=IN_MATCHES,
    )
    start_bot_difficulty: int | None = flag(
        None,
        "level of the bots at the start, 0 to 150, which then follows the results of the matches; the "
        "engine's own bots if left out",
        at_least=0,
        at_most=150,
        only_with=IN_MATCHES,
    )
    timelimit: float | None = flag(
        None,
        "length of a match in minutes; as the env defines if left out",
        above=0,
        at_most=100_000,
        only_with=IN_MATCHES,
    )
    doom_shaping: tuple[str, ...] = flag(
        (),
        "rewards for changes of game variables in a step, in place of the env's own: NAME=REWARD "
        "for each unit of a rise, or of a fall with the other sign; or NAME=GAIN/LOSS; in units of the "
        "scenario's rewards; none: no such rewards",
    )
    doom_cost: tuple[str, ...] = flag(
        (),
        "costs of changes of game variables in a step, beside the reward: NAME=COST or NAME=GAIN/LOSS, as "
        "--doom_shaping, e.g. HEALTH=0/1 for each point of health that is lost; none: no costs",
    )
    doom_variables: tuple[str, ...] = flag(
        (),
        "game variables that are observed, such as HEALTH AMMO2 USER1, as the entry `variables`; as the env "
        "defines if left out",
    )
    doom_buffers: tuple[str, ...] = flag(
        (),
        f"further pictures that are observed, each as an entry: {', '.join(BUFFERS)}; as the env defines if "
        "left out",
    )
    doom_grey: bool | None = flag(
        None, "observe grey pictures instead of coloured ones; as the env defines if left out"
    )
    res_w: int = flag(128, "width of the image that the policy sees, in pixels", at_least=1, at_most=4096)
    res_h: int = flag(72, "height of the image that the policy sees, in pixels", at_least=1, at_most=4096)
    wide_aspect_ratio: bool = flag(False, "the engine renders 256x144 pixels instead of 160x120")
    doom_scenarios_dir: str | None = flag(
        None,
        "folder that is searched first for .wad files, the maps of Doom",
        metavar="FOLDER",
    )
    doom_wad: str | None = flag(
        None,
        ".wad file with the maps; as the scenario defines if left out",
        metavar="FILE",
        only_with=WITHOUT_LEVELS,
    )
    doom_levels: tuple[str, ...] = flag(
        (),
        "levels of which each episode plays one, as --level_choice says: FILE.wad (all of its maps), "
        "FILE.wad:MAP, or a folder or pattern of .wad files",
        metavar="FILE",
        levels="sample_factory.families.doom.wad_levels:wad_levels",
    )
    doom_map: str | None = flag(
        None,
        "map in the .wad file, e.g. map02; as the scenario defines if left out",
        metavar="NAME",
        only_with=WITHOUT_LEVELS,
    )
    doom_skill: int | None = flag(
        None,
        "difficulty of the game, from 1, easy, to 5; as the scenario defines if left out",
        between=(1, MAX_SKILL),
    )
    doom_iwad: str | None = flag(
        None,
        ".wad file of the game itself, e.g. doom2.wad; as the scenario defines if left out",
        metavar="FILE",
    )

    def __post_init__(self) -> None:
        folder = self.doom_scenarios_dir
        if folder is not None and not os.path.isdir(os.path.expanduser(folder)):
            raise ConfigError(f"--doom_scenarios_dir={shortened(folder)}: there is no such folder")
        parse_shaping(self.doom_shaping)  # raises
        parse_shaping(self.doom_cost, "doom_cost")


# Flag -> field of DoomSpec, and of EngineSettings, for which the flag has another value.
GAME_FIELDS = {"doom_wad": "wad", "doom_map": "doom_map", "doom_skill": "doom_skill", "doom_iwad": "iwad"}
CONTINUOUS_ENVS = ("doom_dm", "doom_dwango5")
FEW_CORES = 8
# Where a small network learns more in a minute on few cores, measured on two of them (configs/DOOM.md): it
# leaves the cores to the engines. In doom_health_gathering_supreme it learns less; others are not measured.
WITH_SMALL_NETWORK = ("doom_battle", "doom_defend_the_center", "doom_my_way_home")


def doom_defaults(env_name: str) -> dict[str, Any]:
    """Returns the defaults that Doom envs have for flags of the framework, such as encoder, batch size and
    learning rate."""
    few_cores = num_usable_cores() <= FEW_CORES
    small_network = few_cores and env_name in WITH_SMALL_NETWORK
    return {
        "encoder_custom": "vizdoom",
        "encoder_subtype": "convnet_impala" if small_network else "convnet_simple",
        "hidden_size": 256 if small_network else 512,
        # 512 was measured on two cores (configs/DOOM.md). With more than FEW_CORES workers, the number of
        # envs that launch/arrangement.py chooses for each of them would shrink with the batch.
        "batch_size": 512 if few_cores else 1024,
        "ppo_clip_value": 0.2,
        # A narrower network takes smaller steps at the same learning rate.
        "learning_rate": 7e-4 if small_network else 5e-4,
        "gamma": 0.995 if env_name == "doom_deadly_corridor" else 0.99,  # measured: configs/DOOM.md
        "vtrace_lambda": 0.95,  # measured: configs/README.md, "Changes to PPO"
        "obs_subtract_mean": 0.0,
        "obs_scale": 255.0,
        "env_frameskip": 4,
        "fps": 35,
        # The distance to the uniform distribution exists for discrete actions only.
        "exploration_loss": "entropy" if env_name in CONTINUOUS_ENVS else "symmetric_kl",
        "exploration_loss_coeff": 0.001,
    }


FAMILY = FamilyParts(
    "sample_factory.families.doom.make_doom_env:make_doom_env",  # loads the engine
    DoomFlags,
    doom_defaults,
    DOOM_SPECS,
)

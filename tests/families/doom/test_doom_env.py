"""DoomEnv on the real engine."""

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import vizdoom
from gymnasium.spaces import Box, Discrete, Tuple

from sample_factory.envs.abilities import max_episode_steps
from sample_factory.families.doom import doom_family
from sample_factory.families.doom import engine as engine_module
from sample_factory.families.doom.action_spaces import flat
from sample_factory.families.doom.doom_env import DoomEnv
from sample_factory.families.doom.doom_family import DOOM_SPECS, SCENARIOS_FOLDER, DoomSpec, MatchSpec
from sample_factory.families.doom.engine import DoomEngine
from sample_factory.families.doom.make_doom_env import engine_settings
from sample_factory.families.doom.observation import measured_variables
from sample_factory.families.doom.player_score import scored_variables
from tests.waiting import eventually

BATTLE_SPACE = Tuple([Discrete(3), Discrete(3), Discrete(2), Discrete(2), Discrete(11)])
FULL = [Discrete(3), Discrete(3), Discrete(8), Discrete(2), Discrete(2), Discrete(21)]
FULL_WITH_USE_SPACE = Tuple([*FULL[:5], Discrete(2), FULL[5]])
HYBRID_SPACE = Tuple(
    [Discrete(3), Discrete(3), Discrete(3), Discrete(2), Discrete(2), Box(-1, 1, (1,), np.float32)]
)
NEED_SEVERAL_PLAYERS = ("doom_dm", "doom_dwango5", "doom_duel", "doom_deathmatch_full")
MATCHES = (*NEED_SEVERAL_PLAYERS, "doom_duel_bots", "doom_deathmatch_bots")
# (env, action space, has measurements)
SPECS = [
    ("doom_basic", Discrete(4), False),
    ("doom_dm", HYBRID_SPACE, True),
    ("doom_dwango5", HYBRID_SPACE, True),
    ("doom_my_way_home_flat_actions", Discrete(5), False),
    ("doom_defend_the_center_flat_actions", Discrete(4), False),
    ("doom_my_way_home", Tuple([Discrete(3), Discrete(3)]), False),
    ("doom_deadly_corridor", Tuple([Discrete(3), Discrete(3), Discrete(3), Discrete(2)]), False),
    ("doom_defend_the_center", Tuple([Discrete(3), Discrete(2)]), False),
    ("doom_defend_the_line", Tuple([Discrete(3), Discrete(2)]), False),
    ("doom_health_gathering", Discrete(5), False),
    ("doom_health_gathering_supreme", Discrete(5), False),
    ("doom_battle", BATTLE_SPACE, True),
    ("doom_battle2", BATTLE_SPACE, True),
    ("doom_duel_bots", FULL_WITH_USE_SPACE, True),
    ("doom_deathmatch_bots", Tuple(FULL), True),
    ("doom_duel", FULL_WITH_USE_SPACE, True),
    ("doom_deathmatch_full", FULL_WITH_USE_SPACE, True),
    ("doom_benchmark", Discrete(9), False),
]


def flags_of(name: str) -> dict:
    """Returns flags with which a match is short and has one agent."""
    return {"num_agents": 1, "num_bots": 2, "timelimit": 0.1} if name in MATCHES else {}


def play(env: gymnasium.Env, action=None, max_steps: int = 10000):
    """Steps until the episode ends; returns number of steps, return, terminated, truncated, last info."""
    total = 0.0
    for step in range(1, max_steps + 1):
        chosen = env.action_space.sample() if action is None else action
        _, reward, terminated, truncated, info = env.step(chosen)
        total += reward
        if terminated or truncated:
            return step, total, terminated, truncated, info
    raise AssertionError(f"the episode does not end within {max_steps} steps")


def idle_action(env: gymnasium.Env):
    """Returns the action that presses nothing."""
    if isinstance(env.action_space, Discrete):
        return 0
    # The value 0 of a discretised turn is in the middle.
    return tuple(space.n // 2 if space.n > 8 else 0 for space in env.action_space.spaces)


def test_the_table_lists_every_env_for_which_there_is_a_map():
    assert {name for name, *_ in SPECS} | {"doom_two_colors_easy", "doom_two_colors_hard"} == set(DOOM_SPECS)


@pytest.mark.parametrize("name, action_space, has_measurements", SPECS, ids=[spec[0] for spec in SPECS])
def test_each_env_plays(make_env, name, action_space, has_measurements):
    env = make_env(name, **flags_of(name))
    assert env.action_space == action_space
    keys = {"obs", "measurements"} if has_measurements else {"obs"}
    assert set(env.observation_space.spaces) == keys
    env.action_space.seed(0)
    observation, info = env.reset(seed=1)
    assert observation in env.observation_space and info == {}
    assert env.observation_space["obs"].shape == (3, 72, 128)
    assert observation["obs"].std() > 5  # not a blank picture
    for _ in range(10):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert observation in env.observation_space and np.isfinite(reward)
        if terminated or truncated:
            observation, _ = env.reset()


def test_a_step_leaves_earlier_observations_as_they_were(make_env):
    env = make_env("doom_battle")
    first, _ = env.reset(seed=1)
    copies = {key: array.copy() for key, array in first.items()}
    assert first["measurements"][2] == pytest.approx(100 / 30)
    second, _, terminated, truncated, info = env.step(np.zeros(5, np.float32))
    assert (terminated, truncated, info) == (False, False, {})
    assert second["obs"].std() > 5 and (second["obs"] != first["obs"]).any()
    for key, array in first.items():
        np.testing.assert_array_equal(array, copies[key])


def test_the_time_limit_of_basic_is_a_truncation(make_env):
    env = make_env("doom_basic")
    env.reset(seed=1)
    steps, total, terminated, truncated, _ = play(env, action=0)
    assert (steps, terminated, truncated) == (75, False, True)
    assert total == pytest.approx(-3.0)


def test_the_last_step_of_an_episode_counts_the_tics_that_were_played(make_env):
    env = make_env("doom_basic", env_frameskip=7)
    env.reset(seed=1)
    steps, *_, info = play(env, action=0)
    assert steps * 7 - info["frames_left_out"] == 300


def test_killing_the_monster_of_basic_pays_and_is_a_termination(make_env):
    env = make_env("doom_basic")
    env.action_space.seed(0)
    for seed in range(20):
        env.reset(seed=seed)
        _, total, terminated, truncated, _ = play(env)
        if terminated:
            assert total > 0 and not truncated
            return
    raise AssertionError("20 random episodes without a kill")


def test_the_engines_own_timeout_is_a_truncation(make_env):
    env = make_env("doom_my_way_home", env_frameskip=10)
    env.reset(seed=1)
    steps, total, terminated, truncated, _ = play(env, action=(0, 0))
    assert (steps, terminated, truncated) == (210, False, True)
    assert total == pytest.approx(-0.21)


@pytest.mark.parametrize("name", ["doom_battle", "doom_defend_the_center", "doom_health_gathering"])
def test_the_players_death_is_a_termination(make_env, name):
    env = make_env(name)
    env.reset(seed=2)
    steps, _, terminated, truncated, info = play(env, action=idle_action(env))
    assert (terminated, truncated) == (True, False)
    assert steps < 525
    if name != "doom_defend_the_center":
        assert isinstance(info["true_objective"], float)


def test_a_match_ends_by_truncation_with_its_results(make_env):
    env = make_env("doom_deathmatch_bots", timelimit=0.2, num_bots=3)
    env.action_space.seed(0)
    env.reset(seed=1)
    for _ in range(2):
        steps, _, terminated, truncated, info = play(env)
        assert (steps, terminated, truncated) == (105, False, True)
        stats = info["episode_extra_stats"]
        assert info["frames_left_out"] == 1, "the engine plays a tic before the first step"
        assert stats["num_players"] == 4 and 1 <= stats["final_place"] <= 4
        assert info["true_objective"] == stats["frags"]
        env.reset()


def test_a_death_in_a_match_is_followed_by_a_new_life_in_the_same_episode(make_env):
    # A map with rocket launchers only: random shots soon hit a wall nearby.
    env = make_env("doom_dm", num_agents=1, num_bots=1, timelimit=1.0)
    env.action_space.seed(0)
    env.reset(seed=1)
    health = []
    for _ in range(500):
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        assert not terminated and not truncated
        health.append(observation["measurements"][2])
    dead = np.flatnonzero(np.array(health) == 0)
    assert len(dead) > 0 and max(health[dead[0] :]) > 0


def test_bots_with_a_difficulty_have_their_level_in_their_names(make_env):
    env = make_env("doom_deathmatch_bots", timelimit=0.1, num_bots=3, start_bot_difficulty=50)
    env.reset(seed=1)
    _, _, _, _, info = play(env, action=(0, 0, 0, 0, 0, 10))
    names = env._engine.game.get_server_state().players_names[1:4]
    assert all(name.startswith("BOT_") for name in names), names
    assert info["episode_extra_stats"]["bot_difficulty"] == 50


def test_healing_pays_one_point_and_is_not_part_of_the_objective(make_env):
    env = make_env("doom_health_gathering")
    env.action_space.seed(1)
    for seed in range(10):
        env.reset(seed=seed)
        _, total, _, _, info = play(env)
        medikits = total - info["true_objective"]
        assert medikits == pytest.approx(round(medikits)) and medikits >= 0
        if medikits > 0:
            return
    raise AssertionError("10 random episodes without a medikit")


NUM_PICTURES = 30


def pictures(env, seeds) -> list[int]:
    sums = []
    for seed in seeds:
        env.action_space.seed(0)
        observation, _ = env.reset(seed=seed)
        for _ in range(NUM_PICTURES):
            sums.append(int(observation["obs"].sum()))
            observation, *_ = env.step(env.action_space.sample())
    return sums


def test_a_seed_determines_the_episodes_and_without_a_seed_they_differ(make_env):
    first = pictures(make_env("doom_battle"), [1, None, None, 2])
    assert pictures(make_env("doom_battle"), [1, None, None, 2]) == first
    env = make_env("doom_battle")
    pictures(env, [None, None])
    assert pictures(env, [1, None, None, 2]) == first
    episodes = [tuple(first[i : i + NUM_PICTURES]) for i in range(0, len(first), NUM_PICTURES)]
    assert len(set(episodes)) == 4


def test_shaping_can_be_changed_from_the_next_episode_on(make_env):
    env = make_env("doom_battle")
    shaping = env.get_default_reward_shaping()
    assert shaping["delta"]["HEALTH"] == {"gain": 0.005, "loss": -0.003}
    for weights in shaping["delta"].values():
        weights.update(gain=0.0, loss=0.0)
    for slot in shaping["selected_weapon"]:
        shaping["selected_weapon"][slot] = 0.5
    assert env.get_default_reward_shaping()["delta"]["HEALTH"]["gain"] == 0.005
    env.reset(seed=1)
    env.step(idle_action(env))
    env.set_reward_shaping(shaping, 0)
    assert [env.step(idle_action(env))[1] for _ in range(4)][-1] == pytest.approx(0.0002)
    env.reset(seed=1)
    assert [env.step(idle_action(env))[1] for _ in range(5)] == [0, 0, 0, 0, 0.5]


def test_shaping_that_is_set_before_an_episodes_first_step_takes_effect_in_it(make_env):
    env = make_env("doom_battle")
    shaping = env.get_default_reward_shaping()
    shaping["selected_weapon"] = dict.fromkeys(shaping["selected_weapon"], 0.5)
    env.reset(seed=1)
    env.set_reward_shaping(shaping, 0)
    assert [env.step(idle_action(env))[1] for _ in range(5)][-1] == 0.5
    assert make_env("doom_basic").get_default_reward_shaping() == {}


@pytest.mark.parametrize("wide, shape", [(False, (480, 640, 3)), (True, (360, 640, 3))])
def test_render_shows_a_large_picture_and_the_observation_stays(make_env, wide, shape):
    env = make_env("doom_basic", render_mode="rgb_array", wide_aspect_ratio=wide)
    assert env.render() is None
    env.reset(seed=1)
    frame = env.render()
    assert frame.shape == shape and frame.dtype == np.uint8 and frame.std() > 5
    without_pictures = make_env("doom_basic", wide_aspect_ratio=wide)
    assert (env.reset(seed=2)[0]["obs"] == without_pictures.reset(seed=2)[0]["obs"]).all()
    assert (env.step(1)[0]["obs"] == without_pictures.step(1)[0]["obs"]).all()


def test_actions_are_named_by_the_buttons_that_they_press(make_env):
    env = make_env("doom_battle")
    assert env.action_text((1, 2, 1, 0, 0)) == "move forward, move left, attack, turn left right -10"
    assert env.action_text((0, 0, 0, 0, 5)) == ""


WEIGHTS = {"gain": 1.0, "loss": 0.0}


def spec_of(num_actions: int = 4, scenario: str = "basic.cfg", **settings) -> DoomSpec:
    return DoomSpec("my_env", scenario, flat(num_actions), **settings)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (DOOM_SPECS["doom_two_colors_hard"], "two_colors_hard.wad.*--doom_scenarios_dir"),
        (spec_of(9), "8 buttons.*MOVE_LEFT, MOVE_RIGHT, ATTACK"),
        (spec_of(objective="frags"), "my_env: objective='frags' needs a deathmatch"),
        (spec_of(objective="match_won"), "my_env: objective='match_won' needs a deathmatch"),
        (spec_of(shaping={"delta": {"HELTH": WEIGHTS}}), "game variable HELTH; did you mean HEALTH?"),
        (spec_of(shaping={"HEALTH": WEIGHTS}), "delta, selected_weapon and first_visit, not HEALTH"),
        (spec_of(cost={"HEALTH": 1.0}), "my_env: cost has the parts delta, .*, not HEALTH"),
    ],
)
def test_what_the_engine_or_the_scenario_lacks_is_refused_in_one_line(make_env, spec, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        make_env(spec.name, spec=spec)
    assert "\n" not in str(error.value)


def scenario_without_variables(name: str, folder: Path) -> str:
    text, _, _ = (SCENARIOS_FOLDER / name).read_text().partition("available_game_variables")
    path = folder / "mine.cfg"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", [name for name in DOOM_SPECS if name not in MATCHES])
def test_of_the_scenarios_that_come_with_the_package_only_what_the_cfg_lists_is_read(name):
    spec = DOOM_SPECS[name]
    game = vizdoom.DoomGame()
    game.load_config(str(spec.scenario_path()))
    listed = {variable.name for variable in game.get_available_game_variables()}
    assert {*scored_variables(spec), *measured_variables(spec)} <= listed


def test_shaping_pays_for_variables_that_the_cfg_does_not_list(make_env, tmp_path):
    shaping = {"delta": {"AMMO2": {"gain": 0.0, "loss": -7.0}}, "first_visit": 0.25}
    spec = DoomSpec(
        "my_env",
        scenario_without_variables("basic.cfg", tmp_path),
        flat(4),
        shaping=shaping,
        measurements=True,
    )
    env = make_env("my_env", spec=spec)
    observation, _ = env.reset(seed=2)
    assert observation["measurements"][2] == pytest.approx(100 / 30)
    # Each tic costs 1; a shot that misses costs 5 and, a step later, a bullet.
    actions = (0, 3, 0, 0, 1, 1, 1, 1)
    assert [env.step(action)[1] for action in actions] == [-4, -4, -16, -4, -4, -4, -3.75, -4]


def test_the_flag_replaces_the_shaping_of_the_env(make_env):
    weights = {"delta": {"ANGLE": {"gain": 2.0, "loss": -1.0}}}
    env = make_env("doom_my_way_home", doom_shaping=("ANGLE=2/-1",))
    assert env.get_default_reward_shaping() == weights
    env.reset(seed=1)
    angles = [env._engine.game.get_game_variable(vizdoom.GameVariable.ANGLE)]
    rewards = []
    for action in ((0, 0), (1, 0), (1, 0), (2, 0), (2, 0)):
        rewards.append(env.step(action)[1])
        angles.append(env._engine.game.get_game_variable(vizdoom.GameVariable.ANGLE))
    changes = np.diff(angles)
    assert max(changes) > 0 > min(changes)
    assert rewards == pytest.approx(np.where(changes > 0, 2 * changes, changes) - 0.0004, abs=1e-6)
    assert make_env("doom_battle", doom_shaping=("none",)).get_default_reward_shaping() == {}


def test_the_health_that_a_player_loses_until_it_dies_costs_as_the_flag_says(make_env):
    env = make_env("doom_health_gathering", doom_cost=("HEALTH=0/1",), env_frameskip=50)
    env.reset(seed=1)
    game = env._engine.game
    at_start = game.get_game_variable(vizdoom.GameVariable.HEALTH)
    costs, terminated = [], False
    while not terminated:
        *_, terminated, truncated, info = env.step(0)
        assert not truncated
        costs.append(info["cost"])
    at_end = game.get_game_variable(vizdoom.GameVariable.HEALTH)
    assert at_end <= 0 < costs[-1] and sum(costs) == at_start - at_end


def test_the_bots_difficulty_of_a_users_match_counts_where_the_flag_is_left_out(doom_cfg):
    match = MatchSpec(1, 3, start_bot_difficulty=20)
    spec = dataclasses.replace(DOOM_SPECS["doom_deathmatch_bots"], match=match)
    for flags, expected in (({}, 20), ({"start_bot_difficulty": 0}, 0)):
        assert engine_settings("my_env", spec, doom_cfg(**flags)).match.start_bot_difficulty == expected


def test_a_match_of_several_engines_is_refused_by_an_env_of_one_instead_of_waiting(doom_cfg):
    spec = DOOM_SPECS["doom_duel"]
    with pytest.raises(ValueError, match="doom_duel has 2 players with an engine each"):
        DoomEnv(spec, DoomEngine(engine_settings(spec.name, spec, doom_cfg())), 4, (128, 72))
    alone = engine_settings(spec.name, spec, doom_cfg(num_agents=1))
    DoomEnv(spec, DoomEngine(alone), 4, (128, 72)).close()


@pytest.mark.parametrize("name, flags", [("doom_basic", {}), ("doom_duel", {"timelimit": 0.05})])
def test_without_the_defaults_of_doom_a_step_is_one_tic(make_env, name, flags):
    env = make_env(name, env_frameskip=None, **flags)
    assert max_episode_steps(env) == {"doom_basic": 300, "doom_duel": 105}[name]
    assert env.metadata["render_fps"] == 35


def test_an_engine_that_does_not_start_is_an_error_after_some_attempts(make_env, monkeypatch, caplog):
    def fail(game):
        raise vizdoom.ViZDoomErrorException("no")

    env = make_env("doom_battle")
    with monkeypatch.context() as patch:
        patch.setattr(vizdoom.DoomGame, "init", fail)
        with pytest.raises(RuntimeError, match="doom_battle.*battle_continuous_turning.cfg.*D3_battle.wad"):
            env.reset()
    assert len(caplog.records) == engine_module.START_ATTEMPTS
    env.reset()


SCRIPT = """
import dataclasses, os, signal, sys, types
from sample_factory.families.doom.doom_family import DoomFlags
from sample_factory.families.doom.doom_match_env import DoomMatchEnv
from sample_factory.families.doom.make_doom_env import make_doom_env
cfg = types.SimpleNamespace(**dataclasses.asdict(DoomFlags()), env_frameskip=4)
envs = [make_doom_env(name, cfg) for name in ("doom_basic", "doom_duel_bots", "doom_duel")]
for env in envs:
    env.reset(seed=1)
    action = env.action_space.sample()
    is_match = isinstance(env, DoomMatchEnv)
    env.step([action, action] if is_match else action)
    for engine in env._lockstep._engines if is_match else [env._engine]:
        print("engine", engine.game.get_instance_id(), engine._folder.path, flush=True)
if sys.argv[1] == "close":
    [env.close() for env in envs]
    print("left", os.popen("ps -o args= --ppid %d" % os.getpid()).read().count("vizdoom"))
elif sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def traces_of(instance: str, folder: Path) -> list[str]:
    """Returns processes and files of an engine."""
    found = [str(path) for path in (folder, folder.parent) if path.exists()]
    found += [str(path) for path in Path("/dev/shm").glob(f"*{instance}*")]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if instance.encode() in process.read_bytes():
                found.append(str(process))
        except OSError:
            continue  # the process has just ended
    return found


@pytest.fixture(scope="module")
def ended_scripts(tmp_path_factory):
    """Returns the folder and the output of a script by how it ends; all run side by side."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    options["env"] = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    folders = {end: tmp_path_factory.mktemp(end) for end in ("close", "exit", "kill")}
    scripts = {
        end: subprocess.Popen([sys.executable, "-c", SCRIPT, end], cwd=folder, **options)
        for end, folder in folders.items()
    }
    return {end: (folders[end], script.communicate()[0]) for end, script in scripts.items()}


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("end", ["close", "exit", "kill"])
def test_nothing_is_left_of_the_engines(ended_scripts, end):
    folder, output = ended_scripts[end]
    words = [line.split() for line in output.split("\n")]
    assert list(folder.iterdir()) == [], output
    if end == "close":
        assert ["left", "0"] in words
    engines = [(line[1], Path(line[2])) for line in words if line[:1] == ["engine"]]
    eventually(lambda: not any(traces_of(*engine) for engine in engines), seconds=60)
    assert [traces_of(*engine) for engine in engines] == [[]] * 4


def test_an_engine_that_crashes_raises_and_the_env_can_be_closed_and_used_again(make_env):
    env = make_env("doom_basic")
    env.reset(seed=1)
    pid = int((env._engine._folder.path / "engine").read_text().split()[0])
    os.kill(pid, 9)
    time.sleep(0.2)
    with pytest.raises(Exception, match="crash|exit"):
        for _ in range(3):
            env.step(0)
    env.close()
    env.reset(seed=1)
    env.step(0)


@pytest.mark.parametrize(("cores", "batch_size"), [(1, 512), (8, 512), (9, 1024)])
def test_doom_has_smaller_batches_on_few_cores(monkeypatch, cores, batch_size):
    monkeypatch.setattr(doom_family, "num_usable_cores", lambda: cores)
    assert doom_family.doom_defaults("doom_basic")["batch_size"] == batch_size


@pytest.mark.parametrize(
    ("cores", "env", "network"),
    [
        (1, "doom_battle", ("convnet_impala", 256, 7e-4)),
        (8, "doom_my_way_home", ("convnet_impala", 256, 7e-4)),
        (9, "doom_battle", ("convnet_simple", 512, 5e-4)),
        (8, "doom_health_gathering_supreme", ("convnet_simple", 512, 5e-4)),
        (8, "doom_benchmark", ("convnet_simple", 512, 5e-4)),
    ],
)
def test_some_scenarios_have_a_smaller_network_on_few_cores(monkeypatch, cores, env, network):
    monkeypatch.setattr(doom_family, "num_usable_cores", lambda: cores)
    defaults = doom_family.doom_defaults(env)
    assert tuple(defaults[name] for name in ("encoder_subtype", "hidden_size", "learning_rate")) == network

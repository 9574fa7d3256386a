"""Which level is next: what the choices say, what the envs get, and what is saved with the run."""

import json
import types

import pytest

from sample_factory import LevelChoice, register_level_choice
from sample_factory.config.flags import ConfigError
from sample_factory.exchange.messages import EpisodeReport, MilestoneRequest, NewTrainingInfo, TrainReport
from sample_factory.launch.checks import check_levels
from sample_factory.launch.notes import note_levels
from sample_factory.mainloop import level_choice
from sample_factory.mainloop.level_choice import WINDOW, registered_level_choice
from sample_factory.mainloop.levels import LevelsObserver
from sample_factory.mainloop.main_loop import MainLoop, Resources
from sample_factory.runtime.registry import Registry
from tests.counting import CountingEnv, make_config, make_plan, make_shared
from tests.mainloop.test_main_loop import received

LEVELS = ("easy", "hard")


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    built_in = {name: registered_level_choice(name) for name in level_choice._REGISTRY.names}
    monkeypatch.setattr(level_choice, "_REGISTRY", Registry("level_choice", built_in))


def config_of(tmp_path, choice, **flags):
    typed = {"level_choice": choice, "train_for_env_steps": 1000, "serial_mode": True, **flags}
    return make_config(train_dir=str(tmp_path), **typed)


@pytest.fixture
def make_loop(tmp_path):
    def make(choice, levels=LEVELS, **flags):
        config = config_of(tmp_path, choice, **flags)
        buffers, channels = make_shared(config, CountingEnv(0, 1))
        config.experiment_dir.mkdir(exist_ok=True)
        plan = make_plan(
            config, CountingEnv(0, 1), observers={"level_choice": LevelsObserver(levels, config)}
        )
        info = plan.sampling.info._replace(receives_training_info=True)
        plan = plan._replace(sampling=plan.sampling._replace(info=info))
        return MainLoop(plan, Resources(buffers, channels)), channels, config.experiment_dir

    return make


def played(level, reward, policy_id=0):
    return EpisodeReport(policy_id, reward, 10, reward, {}, level=level)


def report(loop, channels, *reports):
    for message in reports:
        channels.reports.put(message)
    loop.turn(0.1)


def trained(env_frames, policy_id=0):
    return TrainReport(policy_id, 1, env_frames, 100, None)


def weights(channels, policy_id=0):
    """Returns the newest weights that were sent to the worker; None if none were."""
    messages = received(channels.inboxes[0], NewTrainingInfo)
    sent = [own.training_info.get("level_weights") for own in messages if own.policy_id == policy_id]
    return sent[-1] if sent else None


def test_a_sequence_gives_each_level_an_equal_share_of_the_frames_and_keeps_a_milestone_of_each(make_loop):
    loop, channels, _ = make_loop("sequence", ("a", "b", "c", "d"))
    assert weights(channels) == [1, 0, 0, 0], "before the first reset"
    report(loop, channels, trained(0))
    requests = []
    for env_frames, expected in ((249, 0), (250, 1), (499, 1), (760, 3), (999, 3), (1000, 3)):
        report(loop, channels, trained(env_frames))
        sent = weights(channels)
        assert sent == [float(level == expected) for level in range(4)], env_frames
        requests.append(len(received(channels.learners[0], MilestoneRequest)))
    assert requests == [0, 1, 0, 1, 0, 0]


def test_progress_prefers_levels_whose_mean_changes_also_for_the_worse_and_plays_all_of_them():
    choice = level_choice.Progress(("up", "down", "flat", "new"), None)
    for number in range(WINDOW):
        better = number >= WINDOW // 2
        choice.add(0, played("up", 3.0 * better))
        choice.add(1, played("down", -1.0 * better))
        choice.add(2, played("flat", 7.0))
        choice.add(2, played("flat", float("nan")))
    up, down, flat, new = choice.weights(0)
    assert up == new == pytest.approx(0.05 + 0.8 * 3 / 7)
    assert down == pytest.approx(0.05 + 0.8 / 7) and flat == pytest.approx(0.05)
    again = level_choice.Progress(choice.levels, None)
    again.load(json.loads(json.dumps(choice.state())))
    assert again.weights(0) == choice.weights(0)


class Counting(LevelChoice):
    """Plays the level that was played least often."""

    def __init__(self, levels, cfg):
        super().__init__(levels, cfg)
        self.counts = [0] * len(levels)

    def add(self, level, episode):
        self.counts[level] += 1

    def weights(self, env_frames):
        return [float(count == min(self.counts)) for count in self.counts]

    def state(self):
        return self.counts

    def load(self, state):
        self.counts = state


def test_a_registered_choice_gets_the_episodes_of_its_policy_and_goes_on_in_a_resumed_run(make_loop, caplog):
    register_level_choice("counting", Counting)
    loop, channels, folder = make_loop("counting", num_policies=2)
    assert weights(channels, 1) == [1, 1]
    played_levels = [played(level, 1.0, policy_id=1) for level in ("easy", "unknown")]
    report(loop, channels, *played_levels, trained(0, 1), trained(100, 1))
    assert weights(channels, 1) == [0, 1]
    loop.close()
    assert json.loads((folder / "levels.json").read_text())["policies"] == [[0, 0], [1, 0]]
    _, channels, _ = make_loop("counting", num_policies=2)
    assert weights(channels, 1) == [0, 1]
    assert "starts anew" not in caplog.text
    _, channels, _ = make_loop("counting", (*LEVELS, "last"), num_policies=2)
    assert weights(channels, 1) == [1, 1, 1] and "starts anew" in caplog.text


def test_a_choice_that_raises_later_is_switched_off_and_its_weights_stay(make_loop, caplog):
    class Failing(Counting):
        def weights(self, env_frames):
            return super().weights(env_frames) if not any(self.counts) else [0.0, -1.0]

    register_level_choice("failing", Failing)
    loop, channels, _ = make_loop("failing")
    assert weights(channels) == [1, 1]
    report(loop, channels, played("easy", 1.0), *map(trained, (0, 100, 200)))
    assert weights(channels) == [1, 1]
    assert caplog.text.count("'level_choice' is switched off") == 1
    assert "should return 2 numbers, none of them negative" in caplog.text


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda levels, cfg: 1 / 0, "cannot be made: ZeroDivisionError"),
        (lambda levels, cfg: 3, "is int; it should derive from LevelChoice"),
        (type("Wrong", (LevelChoice,), {"weights": lambda *_: [1.0]}), "should return 2 numbers"),
    ],
)
def test_a_choice_that_cannot_be_used_ends_the_run_before_it_starts(make_loop, factory, message):
    register_level_choice("wrong", factory)
    with pytest.raises(ConfigError, match=message):
        make_loop("wrong")


def test_a_state_of_another_form_is_refused(make_loop):
    _, _, folder = make_loop("progress")
    saved = {"choice": "progress", "levels": list(LEVELS), "policies": [3]}
    (folder / "levels.json").write_text(json.dumps(saved))
    with pytest.raises(ConfigError, match=r"levels.json: .*does not accept its state .*delete the file"):
        make_loop("progress")


@pytest.mark.parametrize(
    ("choice", "flags", "message"),
    [
        ("sequenc", {}, "did you mean sequence"),
        ("sequence", {"train_for_env_steps": 10**10}, "divides --train_for_env_steps"),
        ("progress", {"num_nodes": 2}, "use --level_choice=fixed or uniform with --num_nodes"),
        (
            "fixed",
            {"num_workers": 1, "num_envs_per_worker": 1, "worker_num_splits": 1},
            "each of the 1 envs .* there are 2",
        ),
    ],
)
def test_a_choice_that_does_not_fit_the_other_flags_is_refused(tmp_path, choice, flags, message):
    with pytest.raises(ConfigError, match=message):
        check_levels(config_of(tmp_path, choice, **flags), types.SimpleNamespace(levels=LEVELS))


def test_a_choice_without_levels_is_warned_of(tmp_path):
    (note,) = note_levels(config_of(tmp_path, "uniform"), types.SimpleNamespace(levels=()))
    assert note.is_warning and "it needs --levels" in note.text

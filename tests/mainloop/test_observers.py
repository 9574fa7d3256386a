"""Observers are called, may send values and end the run, and cannot harm it."""

import logging
import re
import types
import zipfile

import numpy as np
import pytest

from sample_factory import Observer, register_observer
from sample_factory.config.flags import ConfigError
from sample_factory.exchange.messages import EpisodeReport, NewTrainingInfo, TrainReport
from sample_factory.mainloop import observer as observer_module
from sample_factory.mainloop.main_loop import MainLoop, Resources
from sample_factory.mainloop.observing import follows_episodes, make_observers
from sample_factory.runtime.registry import Registry
from tests.counting import CountingEnv, dead_worker, make_config, make_plan, make_shared
from tests.mainloop.test_main_loop import received, summaries

EPISODE = EpisodeReport(0, 5.0, 10, 5.0, {"kills": 2.0}, {"level": 3})


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """An empty registry for each test."""
    monkeypatch.setattr(observer_module, "_REGISTRY", Registry("observers", {}))


@pytest.fixture
def make_loop(tmp_path):
    def make(*observers, receives=True, **flags):
        for number, observer in enumerate(observers):
            register_observer(f"own_{number}", lambda observer=observer: observer)
        config = make_config(train_dir=str(tmp_path), **{"num_workers": 2, **flags})
        buffers, channels = make_shared(config, CountingEnv(0, 1))
        config.experiment_dir.mkdir(exist_ok=True)
        plan = make_plan(config, CountingEnv(0, 1), observers=make_observers(config))
        info = plan.sampling.info._replace(receives_training_info=receives)
        plan = plan._replace(sampling=plan.sampling._replace(info=info))
        loop = MainLoop(plan, Resources(buffers, channels))
        return loop, channels, config.experiment_dir

    return make


def trained(policy_id=0, env_frames=100, stats=None):
    return TrainReport(policy_id, 1, env_frames, 100, stats)


def report(loop, channels, *reports):
    for message in reports:
        channels.reports.put(message)
    loop.turn(0.1)


def values(channels, worker=0):
    """Returns the values in the messages to a worker."""
    return [message.training_info for message in received(channels.inboxes[worker], NewTrainingInfo)]


class Noting(Observer):
    """Notes all calls."""

    def __init__(self):
        self.calls = []

    def on_init(self, run):
        self.calls.append(("init", run.cfg.env, run.folder.name, run.num_policies))

    def on_start(self, run):
        self.calls.append("start")

    def on_episode(self, run, episode):
        self.calls.append(("episode", episode.reward, episode.info, len(run.policies[0].episodes)))

    def on_training_step(self, run, report):
        self.calls.append(("step", report.env_frames, report.stats, run.env_frames))

    def extra_summaries(self, run, policy_id):
        return {"own/policy": policy_id, "own/count": np.float32(2.5), "own/unknown": float("nan")}

    def on_stop(self, run):
        self.calls.append("stop")


def test_an_observer_is_called_at_each_event_with_the_counters_up_to_date(make_loop):
    observer = Noting()
    loop, channels, _ = make_loop(observer)
    assert observer.calls == [("init", "counting", "default_experiment", 1)]
    loop.receive(0.0)
    report(loop, channels, EPISODE)
    report(loop, channels, trained(env_frames=50))  # what the learner has restored: no iteration
    report(loop, channels, trained(env_frames=100, stats={"loss": 1.0}))
    loop.close()
    assert observer.calls[1:] == [
        ("episode", 5.0, {"level": 3}, 1),
        "start",
        ("step", 100, {"loss": 1.0}, 100),
        "stop",
    ]


def test_own_summaries_are_written_for_each_policy_and_numbers_only(make_loop, caplog):
    class Odd(Observer):
        def extra_summaries(self, run, policy_id):
            many = np.zeros(2)
            return {"own/text": "high", "own/none": None, 3: 1.0, "own/huge": 10**400, "own/many": many} | {
                "own/good": 1
            }

    class Nothing(Observer):
        def extra_summaries(self, run, policy_id):
            return 3

    loop, channels, folder = make_loop(Noting(), Odd(), Nothing(), num_policies=2)
    report(loop, channels, trained(0), trained(1))
    loop.close()
    for policy_id in (0, 1):
        written = summaries(folder, policy_id)
        assert (written["own/policy"], written["own/count"], written["own/good"]) == (policy_id, 2.5, 1)
        assert {tag for tag in written if tag.startswith("own/")} == {"own/policy", "own/count", "own/good"}
    assert "observer 'own_1': extra_summaries returned 'own/text': 'high', which is left out" in caplog.text
    assert caplog.text.count("observer 'own_2': extra_summaries returned 3; it should be a dict") == 1


def test_a_run_that_an_observer_ends_is_done_and_shows_the_reason(make_loop, caplog):
    class Stopping(Observer):
        def on_episode(self, run, episode):
            run.stop("solved:\n reward 5")
            run.stop("again")

    caplog.set_level(logging.INFO)
    loop, channels, _ = make_loop(Stopping())
    loop.started()
    report(loop, channels, trained(env_frames=0), trained(env_frames=100))
    assert not loop.is_done
    report(loop, channels, EPISODE)
    assert loop.is_done and loop.stop_reason == "solved: reward 5"
    loop.close()
    loop.log_summary()
    assert "Stopping early: solved: reward 5" in caplog.text
    assert "finished early (solved: reward 5): 100 env frames in " in caplog.text


@pytest.mark.parametrize("reason", [0.95, None, " "])
def test_a_reason_that_is_no_text_switches_the_observer_off_and_training_continues(make_loop, caplog, reason):
    class Stopping(Noting):
        def on_start(self, run):
            run.stop(reason)

    observer = Stopping()
    loop, channels, folder = make_loop(observer)
    report(loop, channels, trained(), EPISODE)
    report(loop, channels, EPISODE)
    loop.close()
    assert not loop.is_done
    line = "observer 'own_0' is switched off, and training continues: on_start raised TypeError: "
    assert f"{line}stop({reason!r}): the reason should be a text" in caplog.text
    assert "stop" not in observer.calls, "no further method is called"
    assert summaries(folder, 0)["health/observer_errors"] == 1


METHODS = ("on_start", "on_episode", "on_training_step", "extra_summaries", "on_stop")


@pytest.mark.parametrize("error", [KeyError("map07"), SystemExit("solved")])
@pytest.mark.parametrize("method", METHODS)
def test_an_observer_that_raises_or_exits_is_switched_off_and_the_others_are_still_called(
    make_loop, caplog, method, error
):
    def fail(self, *arguments):
        raise error

    other = Noting()
    broken = types.new_class("Broken", (Observer,), exec_body=lambda body: body.update({method: fail}))()
    loop, channels, _ = make_loop(broken, other)
    report(loop, channels, trained(), trained(), EPISODE)
    report(loop, channels, EPISODE)
    loop.close()
    (line,) = [record for record in caplog.records if "switched off" in record.getMessage()]
    raised = f"{method} raised {type(error).__name__}: {error}"
    assert f"'own_0' is switched off, and training continues: {raised}" in line.message
    assert "test_observers.py:" in line.message and "\n" not in line.message
    assert "Traceback" in vars(line)["details_for_the_file"][0]
    assert [call[0] for call in other.calls].count("episode") == 2 and other.calls[-1] == "stop"


def test_an_observer_that_raises_before_the_start_prevents_it(make_loop):
    class Broken(Observer):
        def on_init(self, run):
            raise FileNotFoundError("levels.json")

    with pytest.raises(ConfigError, match=r"observer 'own_0': on_init raised FileNotFoundError: levels.json"):
        make_loop(Broken())


class Version2(Observer):
    def on_training_step(self, runner):
        """Too few parameters."""


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        (lambda: 3, "the registered function returned int; it should return .* sample_factory.Observer"),
        (lambda run: Observer(), "cannot be made: TypeError"),
        ("math:nothing", "cannot be made: .*math has no attribute nothing"),
        (
            Version2,
            r"Version2.on_training_step has the parameters \(runner\); they should be \(self, run, rep",
        ),
    ],
)
def test_an_observer_that_cannot_be_made_or_called_is_an_error_of_one_line(factory, expected):
    register_observer("own", factory)
    with pytest.raises(ConfigError, match=f"observer 'own'.*{expected}") as caught:
        make_observers(make_config())
    assert "\n" not in str(caught.value)


def test_registered_observers_are_active_unless_others_are_named():
    register_observer("first", Noting)
    register_observer("second", Observer)
    assert list(make_observers(make_config())) == ["first", "second"]
    assert list(make_observers(make_config(observers=("second",)))) == ["second"]
    assert make_observers(make_config(observers=("none",))) == {}
    observer = Noting()
    register_observer("second", observer)
    assert make_observers(make_config(observers=("second",))) == {"second": observer}
    path = "sample_factory.mainloop.observer:Observer"
    assert list(make_observers(make_config(observers=(path,)))) == [path]
    with pytest.raises(ConfigError, match="--observers=secnd is unknown; did you mean second.*first, second"):
        make_observers(make_config(observers=("secnd",)))


def test_infos_are_reported_only_if_an_observer_follows_episodes():
    assert (
        follows_episodes({"a": Observer(), "b": Noting()})
        and not follows_episodes({"a": Observer()})
        and not follows_episodes({})
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_method_that_is_set_on_the_observer_itself_is_called_as_that_of_a_class(make_loop, method):
    calls = []
    observer = Observer()
    setattr(observer, method, lambda run, *arguments: calls.append(arguments) or {})
    loop, channels, _ = make_loop(observer)
    report(loop, channels, trained(), trained(), EPISODE)
    loop.close()
    assert calls


class Sending(Observer):
    """Sends the values that a test gives it at each episode."""

    def __init__(self, first, *later):
        self.first, self.later = first, list(later)

    def on_init(self, run):
        run.send_to_envs(self.first)

    def on_episode(self, run, episode):
        run.send_to_envs(*self.later.pop(0))


def test_values_reach_all_workers_replaced_ones_too_and_earlier_ones_stay(make_loop):
    observer = Sending({"level": 1, "speed": 2}, [{"level": 3}])
    loop, channels, _ = make_loop(observer)
    first = {"policy_id": 0, "approx_total_training_steps": 0, "level": 1, "speed": 2}
    assert values(channels, 0) == values(channels, 1) == [first]
    report(loop, channels, EPISODE)
    second = {**first, "level": 3}
    assert values(channels, 0)[-1] == values(channels, 1)[-1] == second
    loop.process_replaced(*dead_worker(1))
    assert values(channels, 0) == [] and values(channels, 1) == [second]
    loop.close()


def test_values_are_those_at_the_time_of_sending_although_the_observer_changes_them_later(make_loop):
    levels = [1]
    loop, channels, _ = make_loop(Sending({"levels": levels}))
    levels.append(2)
    loop.process_replaced(*dead_worker(1))
    assert [sent["levels"] for sent in values(channels, 1)] == [[1], [1]]
    loop.close()


def test_values_may_be_for_the_envs_of_one_policy(make_loop):
    loop, channels, _ = make_loop(Sending({"level": 1}, [{"level": 2}, 1]), num_policies=2)
    report(loop, channels)
    values(channels)
    report(loop, channels, EPISODE)
    assert {sent["policy_id"]: sent["level"] for sent in values(channels)} == {1: 2}
    loop.close()


def test_envs_that_ask_for_values_get_the_env_frames_without_any_observer(make_loop):
    loop, channels, _ = make_loop(serial_mode=True)
    assert values(channels) == [{"policy_id": 0, "approx_total_training_steps": 0}]
    report(loop, channels, trained(env_frames=700))
    assert values(channels) == [{"policy_id": 0, "approx_total_training_steps": 700}]
    report(loop, channels)
    assert values(channels) == [], "only news are sent"
    loop.close()


def test_envs_of_a_resumed_run_begin_with_the_env_frames_of_its_checkpoints(make_loop):
    loop, _, folder = make_loop()
    loop.close()
    (folder / "checkpoint_p1").mkdir()
    (folder / "checkpoint_p1" / "checkpoint_000000006_990.pth").write_bytes(b"damaged")
    for name in ("checkpoint_000000004_900.pth", "checkpoint_000000002_500.pth"):
        with zipfile.ZipFile(folder / "checkpoint_p1" / name, "w") as file:
            file.writestr("weights", b"")
    loop, channels, _ = make_loop(num_policies=2)
    assert [sent["approx_total_training_steps"] for sent in values(channels)] == [0, 900]
    loop.close()


def test_nothing_is_sent_to_envs_that_receive_no_values_and_the_log_says_so_once(make_loop, caplog):
    loop, channels, _ = make_loop(Sending({"level": 1}, [{"level": 2}]), receives=False)
    report(loop, channels, trained(), EPISODE)
    loop.close()
    assert values(channels) == []
    assert caplog.text.count("send_to_envs has no effect: counting has no set_training_info") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([{"level": 2}, 5], "policy_id=5 should be below 1"),
        ([3], r"send_to_envs\(3\): the values should be a mapping"),
        ([{1: 2}], "the values should be a mapping"),
        (
            [{"lock": __import__("threading").Lock()}],
            "objects that can be pickled, but TypeError: cannot pickle",
        ),
        ([{"map": np.zeros(10**6)}], "the values have 8,000,.* bytes, at most 100,000 can be sent"),
    ],
)
def test_values_that_cannot_be_sent_switch_the_observer_off_and_the_earlier_ones_stay(
    make_loop, caplog, arguments, expected
):
    loop, channels, _ = make_loop(Sending({"level": 1}, arguments))
    values(channels)
    report(loop, channels, EPISODE)
    loop.process_replaced(*dead_worker(0))
    assert values(channels)[-1]["level"] == 1
    loop.close()
    (line,) = [record.getMessage() for record in caplog.records if "switched off" in record.getMessage()]
    assert re.search(f"on_episode raised .*{expected}", line), line

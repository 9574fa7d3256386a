"""What the main process says to rollout workers, with real queues."""

import gymnasium as gym
import pytest

from sample_factory.checkpoints.milestones import Milestone
from sample_factory.envs.env_info import EnvInfo
from sample_factory.envs.env_registry import EnvFamily
from sample_factory.exchange.messages import Incident, MatchReport, MilestoneSaved, Opponents
from sample_factory.experiment.main_loop import Reporting
from sample_factory.experiment.wiring import Parts, make_league, make_population
from sample_factory.population.pbt import Decision
from sample_factory.spaces.agent_kinds import AgentKinds
from tests.counting import CountingEnv, make_config, make_shared

MILESTONE = Milestone(0, version=1, env_frames=100)


@pytest.fixture
def make_reporting(tmp_path):
    def make(**flags):
        config = make_config(train_dir=str(tmp_path), num_workers=2, selfplay_past_share=0.5, **flags)
        buffers, channels = make_shared(config, CountingEnv(0, 2))
        config.experiment_dir.mkdir(exist_ok=True)
        family = EnvFamily("counting", CountingEnv, None, {})
        spaces = gym.spaces.Dict(obs=CountingEnv.observation_space), CountingEnv.action_space
        info = EnvInfo(AgentKinds.one(*spaces, num_agents=2), frameskip=1)
        evolve_and_play = make_population(config, info, seed=1), make_league(config)
        return (
            Reporting(Parts(config, family, info, buffers, channels, 1, None, *evolve_and_play)),
            channels,
            config.experiment_dir,
        )

    return make


def told(channels, worker):
    messages = channels.inboxes[worker].get_many(0.0, 1000)
    return [message.past_selves for message in messages if isinstance(message, Opponents)]


def test_all_rollout_workers_hear_of_a_new_milestone_and_a_replaced_one_hears_of_all(make_reporting):
    reporting, channels, _folder = make_reporting()
    assert told(channels, 0) == told(channels, 1) == [()]
    channels.reports.put(MilestoneSaved(MILESTONE))
    reporting.turn(0.1)
    assert told(channels, 0) == told(channels, 1) == [(MILESTONE,)]
    reporting.turn(0.0)
    reporting.worker_replaced(1, "rollout_worker_1 died")
    assert told(channels, 0) == [] and told(channels, 1) == [(MILESTONE,)]
    reporting.close()


def test_in_a_resumed_run_all_rollout_workers_are_told_the_past_selves_of_the_earlier_one(make_reporting):
    reporting, channels, folder = make_reporting()
    path = MILESTONE.path(folder)
    path.parent.mkdir(parents=True)
    path.touch()
    reporting.close()
    assert (folder / "league.json").exists()
    reporting, channels, _ = make_reporting()
    assert told(channels, 0) == told(channels, 1) == [(MILESTONE,)]
    reporting.close()


def test_lost_opponents_are_counted(make_reporting):
    reporting, channels, _ = make_reporting()
    channels.reports.put(Incident("lost_opponents", "policy 0 plays against this past self no longer"))
    reporting.take_in(0.1)
    assert reporting.monitor._components.summaries(0)["0_aux/lost_opponents"] == 1
    reporting.close()


def test_a_policy_that_takes_over_another_takes_over_its_rating(make_reporting):
    reporting, channels, _folder = make_reporting(num_policies=2, with_pbt=True)
    for report in (MilestoneSaved(MILESTONE), *[MatchReport(0, MILESTONE, 1.0)] * 9):
        channels.reports.put(report)
    reporting.take_in(0.1)
    population = reporting._evolution.population
    reporting._evolved(Decision(1, donor=None, member=population.members[1]))
    before = [reporting._league.summaries(policy) for policy in (0, 1)]
    reporting._evolved(Decision(1, donor=0, member=population.members[0]))
    after = [reporting._league.summaries(policy) for policy in (0, 1)]
    assert before[0] != before[1] and after == [before[0], before[0]]
    reporting.close()

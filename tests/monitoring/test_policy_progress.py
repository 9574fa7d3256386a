from sample_factory.envs.end_infos import MAX_STATS
from sample_factory.exchange.messages import EpisodeReport
from sample_factory.monitoring.console import level_lines
from sample_factory.monitoring.policy_progress import TAGS, EpisodeStats, Spread


def episode(reward: float, **extra_stats: float) -> EpisodeReport:
    return EpisodeReport(0, reward, 100, reward, extra_stats)


def test_only_the_last_episodes_of_the_window_count():
    stats = EpisodeStats(2)
    for reward in (100.0, 1.0, 3.0):
        stats.add(episode(reward))
    assert stats.spread("reward") == Spread(2.0, 1.0, 3.0, 2)


def test_an_extra_stat_is_averaged_over_the_episodes_that_report_it():
    stats = EpisodeStats(10)
    stats.add(episode(0.0, kills=4.0))
    stats.add(episode(0.0))
    assert stats.spread("kills") == Spread(4.0, 4.0, 4.0, 1)
    assert stats.spread("deaths") is None


def test_statistics_with_ever_new_names_are_limited_and_logged_once(caplog):
    stats = EpisodeStats(100)
    for number in range(3 * MAX_STATS):
        stats.add(EpisodeReport(0, 1.0, 96, 1.0, {f"level_{number}": 1.0, "kills": 2.0}))
        if number % 20 == 0:
            assert len(stats.metrics) <= 3 + 100 + 1
    assert stats.metrics == [*TAGS, "kills"] and stats.mean("kills", 100) == 2.0
    assert len(caplog.messages) == 1 and f"'level_{MAX_STATS - 1}'" in caplog.text


def test_a_window_smaller_than_the_usual_minimum_is_drawn_when_full():
    stats = EpisodeStats(2)
    stats.add(episode(1.0))
    assert stats.summaries() == {}
    stats.add(episode(2.0))
    assert stats.summaries()["0_aux/avg_reward"] == 1.5


def test_a_mean_needs_enough_episodes_that_report_the_metric_or_a_full_window():
    small, large = EpisodeStats(2), EpisodeStats(100)
    for stats in (small, large):
        stats.add(episode(1.0, kills=1.0))
        assert stats.mean("reward", at_least=3) is None
        stats.add(episode(2.0))
    assert small.mean("reward", at_least=3) == 1.5
    assert large.mean("reward", at_least=3) is None
    large.add(episode(3.0))
    assert large.mean("reward", at_least=3) == 2.0 and large.mean("kills", at_least=3) is None


def test_a_stat_with_a_slash_keeps_its_own_tag():
    stats = EpisodeStats(1)
    stats.add(episode(1.0, **{"z_00_level/score": 5.0, "kills": 3.0}))
    summaries = stats.summaries()
    assert summaries["z_00_level/score"] == 5.0
    assert summaries["0_aux/avg_kills"] == 3.0


def test_a_metric_of_the_family_is_a_target_until_the_weights_are_replaced():
    stats = EpisodeStats(10)
    stats.add(episode(1.0))
    stats.update_family_metrics({"score": 7.0})
    assert stats.spread("score") == Spread(7.0, 7.0, 7.0, 1)
    assert stats.mean("score", at_least=2) is None, "as long as few episodes have ended"
    stats.add(episode(1.0))
    stats.update_family_metrics({"other": 1.0})
    assert stats.mean("score", at_least=2) == 7.0, "it stays until there is a new value of it"
    stats.clear()
    assert stats.spread("score") is None


def test_each_level_has_a_window_and_curves_of_its_own():
    episodes = EpisodeStats(window=10)
    for number in range(12):
        for level, reward in (("easy", number), ("a:map01", -1.0)):
            episodes.add(episode(reward)._replace(level=level))
    episodes.add(episode(5.0)._replace(level="rare"))
    found = {tag: value for tag, value in episodes.summaries().items() if tag.startswith("levels/")}
    assert found == {
        "levels/a:map01/len": 100,
        "levels/a:map01/reward": -1,
        "levels/easy/len": 100,
        "levels/easy/reward": 6.5,
    }
    assert episodes.spread("reward").num_episodes == 10, "the window of all levels together"
    episodes.add(episode(5.0)._replace(level="easy", true_objective=9.0))
    assert "levels/easy/true_objective" in episodes.summaries()


def test_the_log_has_the_best_and_the_worst_of_many_levels():
    episodes = EpisodeStats(window=10)
    assert level_lines(episodes) == []
    for number in range(3):
        episodes.add(episode(number)._replace(level=f"map{number}"))
    assert level_lines(episodes) == ["3 levels, mean reward 1.00: map0 0, map1 1.00, map2 2.00"]
    for number in range(3, 72):
        episodes.add(episode(number)._replace(level=f"map{number}"))
    assert " ".join(level_lines(episodes)) == (
        "72 levels, mean reward 35.5: best map71 71.0, map70 70.0, map69 69.0, map68 68.0; "
        "worst map0 0, map1 1.00, map2 2.00, map3 3.00"
    )

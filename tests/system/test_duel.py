"""A duel of two policies with real engines, in which an engine, a worker and a learner are killed."""

from tests.system.running import (
    ENGINE,
    FOREVER,
    LIMIT_SECONDS,
    assert_nothing_left,
    child,
    descendants,
    engine_ids,
    engines,
    kill,
    name_of,
    newest_state,
    scalars,
    start,
    wait_for_frames,
    wait_for_line,
)

DUEL = [
    *("--env=doom_duel", "--experiment=a", "--num_policies=2", FOREVER, "--timelimit=0.04", "--device=cpu"),
    *("--num_workers=2", "--num_envs_per_worker=2", "--inline_samplers=0"),
    *("--rollout=16", "--batch_size=128", "--hidden_size=32", "--decorrelate_envs_on_one_worker=False"),
    *("--experiment_summaries_interval=1", "--status_interval=0.5", "--save_every_sec=2"),
]


def test_a_duel_survives_engines_and_workers_and_ends_with_a_killed_learner_that_is_named(
    tmp_path, monkeypatch
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    process = start("train", tmp_path, *DUEL)
    wait_for_line(process, "All processes are ready")
    frames = wait_for_frames(process, beyond=500)
    family = descendants(process)
    ids = engine_ids(process)
    assert [name_of(p) for p in family].count(ENGINE) == 8, "an engine per player of four matches"

    kill(engines(child(family, "rollout_worker_0"))[1])
    wait_for_line(process, "(doom_duel) raised and is rebuilt")
    frames = wait_for_frames(process, beyond=frames + 500)

    kill(child(family, "rollout_worker_1"))
    wait_for_line(process, "rollout_worker_1 died")
    wait_for_frames(process, beyond=frames + 500)
    while not all("0_aux/avg_true_reward" in scalars(tmp_path / "a", policy) for policy in (0, 1)):
        wait_for_frames(process, beyond=0)

    family += descendants(process)
    ids |= engine_ids(process)
    kill(child(descendants(process), "learner_1"))
    output = process.stdout.read()
    assert process.wait(timeout=LIMIT_SECONDS) == 1
    assert "learner_1: ended by signal 9" in output.splitlines()[-1]
    assert_nothing_left(family, temporary, ids)
    for policy in (0, 1):
        assert newest_state(tmp_path / "a", policy)["model"]
        assert scalars(tmp_path / "a", policy)["0_aux/avg_true_reward"], "matches have ended for both"

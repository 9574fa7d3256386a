import json

import pytest
from matplotlib.image import imread

from sample_factory.__main__ import command
from sample_factory.monitoring.summaries import TensorboardWriter
from sample_factory.plotting.metrics import read_policies
from sample_factory.plotting.plot_population import make_panels

main = command("plot_population")

OBJECTIVE = "0_aux/avg_true_reward"
RATE = "zz_pbt/cfg_learning_rate"
CLIP = "zz_pbt/cfg_ppo_clip_ratio"
HEALTH = "zz_pbt/rew_delta_HEALTH_0"
DONOR = "zz_pbt/replaced_by"
# Policy 0 does not change; at 200, policy 1 takes over its weights and its rate, a hundred times its own.
POLICIES = [
    {0: {RATE: 1e-3, CLIP: 0.1, HEALTH: 0.5}, 100: {OBJECTIVE: 5.0}, 300: {OBJECTIVE: 9.0}},
    {
        0: {RATE: 1e-5, CLIP: 0.1, HEALTH: 0.5},
        100: {OBJECTIVE: 1.0},
        200: {RATE: 1e-3, CLIP: 0.1, HEALTH: 0.75, DONOR: 0.0},
        400: {OBJECTIVE: 7.0},
    },
]


@pytest.fixture
def population(tmp_path):
    """Writes the files of an experiment."""

    def write(policies=POLICIES, **flags):
        folder = tmp_path / "population"
        folder.mkdir()
        values = {"env": "doom_battle", "num_policies": len(policies), **flags}
        (folder / "cfg.json").write_text(json.dumps(values))
        for policy, moments in enumerate(policies):
            writer = TensorboardWriter(folder / ".summary" / str(policy))
            for step, scalars in moments.items():
                writer.write(scalars, step)
            writer.flush()
        return folder

    return write


def panels_of(folder):
    return {panel.title: panel for panel in make_panels(read_policies(folder)[1], OBJECTIVE, 100)}


def test_there_is_a_panel_for_the_objective_and_for_every_setting_that_differs_somewhere(population):
    panels = panels_of(population())
    assert list(panels) == ["true objective", "learning rate", "reward shaping: delta_HEALTH_0"]
    rate = panels["learning rate"]
    assert rate.steps and not panels["true objective"].steps
    assert rate.lines[1].x.tolist() == [0, 200, 400], "a setting holds to the end of its policy"


def test_a_takeover_is_marked_on_the_receivers_objective_and_where_it_changes_a_setting(population):
    policies = [dict(moments) for moments in POLICIES]
    policies[1][300] = {DONOR: 0.0}  # the settings are the same already
    panels = panels_of(population(policies))
    marks = {title: [line.marks for line in panel.lines] for title, panel in panels.items()}
    donor = "policy 0"
    assert marks["true objective"] == [
        [],
        [(200, pytest.approx(3.0), donor), (300, pytest.approx(5.0), donor)],
    ]
    assert marks["learning rate"] == [[], [(200, pytest.approx(1e-3), donor)]]
    assert marks["reward shaping: delta_HEALTH_0"] == [[], [(200, 0.75, donor)]]


def test_a_learning_rate_and_what_spans_more_than_a_factor_of_ten_is_logarithmic(population):
    changed = [{0: {RATE: 1e-3, CLIP: 0.1, HEALTH: -0.5}, 100: {OBJECTIVE: 5.0}} for _ in range(2)]
    changed[1][0] = {RATE: 2e-3, CLIP: 2.0, HEALTH: 0.75}
    assert {title: panel.logarithmic for title, panel in panels_of(population(changed)).items()} == {
        "true objective": False,
        "learning rate": True,
        "ppo clip ratio": True,
        "reward shaping: delta_HEALTH_0": False,
    }


def test_the_command_writes_a_picture_and_says_where_every_policy_ends(population, tmp_path, capsys):
    out = tmp_path / "pbt.png"
    assert main([str(population()), f"--out={out}"]) == 0
    assert imread(out).shape[1] > 1000
    lines = {line.split("  ")[0].strip(): line.split()[-2:] for line in capsys.readouterr().out.splitlines()}
    assert lines["env frames"] == ["300", "400"]
    assert lines["true objective"] == ["9.000", "7.000"]
    assert lines["learning rate"] == ["0.001", "0.001"]
    assert lines["takeovers"] == ["0", "1"] and lines["the last from"] == ["-", "0"]


def test_the_objective_is_that_of_the_experiment(population, tmp_path, capsys):
    policies = [{0: {RATE: 1e-3}, 100: {OBJECTIVE: 5.0, "0_aux/avg_kills": 3.0}} for _ in range(2)]
    assert main([str(population(policies, pbt_target_objective="kills")), f"--out={tmp_path / 'a.png'}"]) == 0
    output = capsys.readouterr().out
    assert "\nkills  " in output and "true objective" not in output


@pytest.mark.parametrize(
    ("policies", "argument", "message"),
    [
        ([{0: {OBJECTIVE: 1.0}}] * 2, "--out=a.png", "--with_pbt=True"),
        ([{0: {RATE: 1.0}}] * 2, "--out=a.png", "0_aux/avg_reward"),
        ([{0: {RATE: 1.0}}, {}], "--out=a.png", "policy 1"),
        (POLICIES, "--out=a.gif", "a.gif"),
    ],
)
def test_bad_input_is_one_clear_line(
    population, tmp_path, monkeypatch, refused_by, policies, argument, message
):
    monkeypatch.chdir(tmp_path)
    assert message in refused_by(main, str(population(policies)), argument)


def test_without_a_folder_it_says_what_to_name(capsys):
    assert main([]) == 2
    assert "name a folder like train_dir/my_experiment" in capsys.readouterr().err

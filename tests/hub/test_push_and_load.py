"""An experiment is pushed to a Hub, and loaded from there."""

import json
import shutil

import gymnasium as gym
import numpy as np
import pytest
import yaml

from sample_factory import enjoy, load_policy, register_env, train
from sample_factory.evaluation.enjoy import play
from sample_factory.evaluation.measurement import measure_checkpoints
from sample_factory.hub import load_from_hub, push_to_hub
from sample_factory.hub.push_to_hub import staged
from tests.evaluation.conftest import save_untrained
from tests.hub.conftest import ENV, contents
from tests.hub.hub_server import READER, Repository
from tests.mixed import MixedCounting

NAME = "me/pole_repository"
TINY_EVAL = ["--eval_episodes=4", "--seed=5", "--serial_mode=True", "--with_video=False"]


def header_of(card: bytes) -> dict:
    return yaml.safe_load(card.decode().split("---")[1])


def as_leaderboard_reads(header: dict) -> tuple[float, float]:
    """Returns mean and std as the leaderboard of the Deep RL Course parses them."""
    value = header["model-index"][0]["results"][0]["metrics"][0]["value"]
    mean, std = str(value).split(" +/- ")
    return float(mean), float(std)


def actions_of(experiment, train_dir) -> list[int]:
    policy = load_policy(experiment, train_dir, deterministic=True)
    env = gym.make("CartPole-v1")
    observation, _ = env.reset(seed=11)
    actions = []
    for _ in range(30):
        actions.append(policy.act(observation))
        observation, _, terminated, truncated, _ = env.step(actions[-1])
        if terminated or truncated:
            observation, _ = env.reset(seed=12)
            policy.reset()
    env.close()
    return actions


def write_results(folder, mean: float, std: float, checkpoint: str = "") -> None:
    """Writes the results of an evaluation of a checkpoint; of the newest one by default."""
    newest = max((folder / "checkpoint_p0").glob("checkpoint_*.pth")).relative_to(folder).as_posix()
    statistics = {"true_objective": {"mean": mean, "std": std, "low": 6.0, "high": 8.0}}
    evaluation = {"statistics": statistics, "num_episodes": 9, "policies": [{"policy_index": 0}]}
    results = {"evaluations": [evaluation], "deterministic": False, "checkpoints": [checkpoint or newest]}
    (folder / "evaluation.json").write_text(json.dumps(results))


def test_an_experiment_that_was_pushed_and_loaded_plays_and_trains_like_the_first(
    hub, trained, tmp_path, capsys
):
    before = contents(trained)
    assert push_to_hub.main(["-d", str(trained), "-r", NAME, *TINY_EVAL]) == 0
    assert f"pushed: {hub.url}/{NAME}" in capsys.readouterr().out
    after = contents(trained)
    results = json.loads(
        after.pop("evaluation.json"), parse_constant=pytest.fail
    )  # of 4 episodes no interval
    assert after == before, "a push only adds the results"

    pushed = hub.repositories[NAME].files
    assert {"README.md", "evaluation.json", "cfg.json", "sf_log.txt"} <= set(pushed)
    checkpoints = [name for name in pushed if name.startswith("checkpoint_p0/checkpoint_")]
    assert checkpoints and any(name.startswith(".summary/0/events.out.tfevents") for name in pushed)
    assert not [name for name in pushed if "lock" in name or "push_to_hub" in name]
    rewards = [episode["reward"] for episode in results["evaluations"][0]["episodes"]]
    header = header_of(pushed["README.md"])
    assert len(rewards) == 4 and json.loads(pushed["evaluation.json"]) == results
    assert as_leaderboard_reads(header) == (round(np.mean(rewards), 2), round(np.std(rewards), 2))

    assert load_from_hub.main(["-r", NAME, "-d", str(tmp_path / "new" / "train_dir")]) == 0
    folder = tmp_path / "new" / "train_dir" / "pole_repository"
    assert f"loaded: {folder}" in capsys.readouterr().out
    assert contents(folder) == pushed
    assert [path.name for path in folder.parent.iterdir()] == ["pole_repository"]
    assert actions_of(folder, None) == actions_of(trained, None)

    flags = [f"--env={ENV}", "--experiment=pole_repository", f"--train_dir={folder.parent}"]
    assert train.main([*flags, "--train_for_env_steps=900"]) == 0
    frames = [int(path.stem.split("_")[2]) for path in folder.glob("checkpoint_p0/checkpoint_*.pth")]
    assert max(frames) >= 900


def test_the_card_is_as_version_2_writes_it_and_names_commands(hub, trained, tmp_path):
    write_results(trained, mean=7.125, std=0.5)
    assert push_to_hub.main(["-d", str(trained), "-r", NAME, "--with_evaluation=False"]) == 0
    card = hub.repositories[NAME].files["README.md"]
    header = header_of(card)
    assert header["model-index"][0]["results"][0]["metrics"][0].pop("value") == "7.12 +/- 0.50"
    assert header == {
        "library_name": "sample-factory",
        "tags": ["deep-reinforcement-learning", "reinforcement-learning", "sample-factory", ENV],
        "model-index": [
            {
                "name": "APPO",
                "results": [
                    {
                        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
                        "dataset": {"name": ENV, "type": ENV},
                        "metrics": [{"type": "mean_reward", "name": "mean_reward", "verified": False}],
                    }
                ],
            }
        ],
    }
    text = card.decode()
    assert f"python -m sample_factory load_from_hub -r {NAME}\n" in text
    assert f"python -m sample_factory.enjoy --env={ENV} --experiment=pole_repository\n" in text
    assert " \\\n    --hidden_size=8" in text and " \\\n    --encoder_mlp_layers 8" in text
    assert "--gamma" not in text and str(tmp_path) not in text
    assert "| true_objective | 7.125 | 0.500 | 6.000 to 8.000 |" in text


def test_enjoy_pushes_its_episodes_and_its_video_as_in_version_2(hub, trained, tmp_path):
    folder = trained
    flags = ["--experiment=pole", f"--train_dir={tmp_path}", "--no_render", "--save_video", "--seed=1"]
    push = ["--push_to_hub", f"--hf_repository={NAME}"]
    assert enjoy.main([*flags, *push]) == 2  # without a number of episodes
    assert enjoy.main([*flags, push[1]]) == 2
    assert not hub.requests
    assert enjoy.main([*flags, *push, "--max_num_episodes=2", "--max_num_frames=4000"]) == 0
    pushed = hub.repositories[NAME].files
    assert pushed["replay.mp4"] == (folder / "replay.mp4").read_bytes()
    assert json.loads(pushed["evaluation.json"])["evaluations"][0]["num_episodes"] == 2
    assert "model-index" in header_of(pushed["README.md"])


def test_a_script_for_version_2_pushes_with_the_cfg_of_parse_full_cfg(hub, trained, tmp_path):
    from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args

    argv = [f"--env={ENV}", "--experiment=pole", f"--train_dir={tmp_path}", "--no_render"]
    argv += ["--max_num_episodes=1", "--push_to_hub", f"--hf_repository={NAME}"]
    parser, _ = parse_sf_args(argv, evaluation=True)
    status, _ = enjoy.enjoy(parse_full_cfg(parser, argv))
    assert status == 0 and "README.md" in hub.repositories[NAME].files


def test_a_second_push_uses_the_results_of_the_same_checkpoint_and_deletes_old_checkpoints(hub, trained):
    folder = trained
    hub.repositories[NAME] = Repository(private=False)
    old = ["checkpoint_p0/checkpoint_000000001_4.pth", "evaluation.json", "replay.mp4", "notes.txt"]
    hub.repositories[NAME].files = dict.fromkeys(old, b"old")
    again = ["-d", str(folder), "-r", NAME, "--with_evaluation=False"]
    assert push_to_hub.main(again) == 0
    pushed = hub.repositories[NAME].files
    assert "model-index" not in header_of(pushed["README.md"]) and "evaluation.json" not in pushed
    assert [name for name in old if name in pushed] == ["notes.txt"]

    write_results(folder, mean=7.25, std=0.5)
    assert push_to_hub.main(again) == 0
    assert as_leaderboard_reads(header_of(hub.repositories[NAME].files["README.md"])) == (7.25, 0.5)
    write_results(folder, mean=7.25, std=0.5, checkpoint="checkpoint_p0/checkpoint_000000001_4.pth")
    assert push_to_hub.main(again) == 0
    assert "model-index" not in header_of(hub.repositories[NAME].files["README.md"])


def test_a_second_push_has_the_video_of_its_results_and_no_other(hub, trained, monkeypatch):
    folder = trained
    first = ["-d", str(folder), "-r", NAME, *TINY_EVAL, "--eval_episodes=1", "--with_video=True"]
    again = ["-d", str(folder), "-r", NAME, "--with_evaluation=False"]

    measured = []

    def measure_once(*arguments, measure=push_to_hub.measure_checkpoints):
        measured.extend([] if measured else measure(*arguments))
        return measured

    def pushed_video():
        assert push_to_hub.main(again) == 0
        pushed = hub.repositories[NAME].files
        has_video = "replay.mp4" in pushed
        assert ("`replay.mp4`" in pushed["README.md"].decode()) == has_video
        return pushed.get("replay.mp4")

    def film(*_):
        (folder / "replay.mp4").write_bytes(b"first")
        return folder / "replay.mp4"

    monkeypatch.setattr(push_to_hub, "measure_checkpoints", measure_once)
    monkeypatch.setattr(push_to_hub, "_film", film)
    assert push_to_hub.main(first) == 0
    (folder / "newer.mp4").write_bytes(b"of enjoy")
    assert pushed_video() == b"first"
    results = (folder / "evaluation.json").read_text()
    write_results(folder, mean=7.25, std=0.5, checkpoint="checkpoint_p0/checkpoint_000000001_4.pth")
    assert pushed_video() is None, "it is of another checkpoint than that of the push"
    (folder / "evaluation.json").write_text(results)
    (folder / "replay.mp4").replace(folder / "renamed.mp4")
    assert pushed_video() == b"first"
    (folder / "renamed.mp4").write_bytes(b"of enjoy, too")
    assert pushed_video() is None
    (folder / "replay.mp4").write_bytes(b"first")
    monkeypatch.setattr(push_to_hub, "_film", lambda *_: None)
    assert push_to_hub.main(first) == 0
    assert pushed_video() is None, "filming has failed, and the film in the folder is older"


PUSH = ["--with_evaluation=False", "-d"]


@pytest.mark.parametrize(
    ("token", "name", "code", "message"),
    [
        ("", "me/pole", 1, "there is no token for http://127.0.0.1"),
        ("hf_wrong", "me/pole", 1, "answers 401, Invalid username or password.; the token is not valid"),
        (READER, "me/pole", 1, "answers 403, You don't have the rights"),
        ("hf_writer", "other/pole", 1, "; the token lacks the permission"),
        ("hf_writer", "pole", 2, "--hf_repository=pole should be USER/NAME"),
    ],
)
def test_a_push_that_is_refused_is_one_line(hub, trained, monkeypatch, capsys, token, name, code, message):
    monkeypatch.setenv("HF_TOKEN", token)
    assert push_to_hub.main([*PUSH, str(trained), "-r", name]) == code
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not hub.repositories


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pole/checkpoint_p0/champion.pth", "the name champion.pth does not have the SGD steps and env fr"),
        ("pole/checkpoint_p0/checkpoint_5_400x.pth", "the name checkpoint_5_400x.pth does not have"),
        ("elsewhere/checkpoint_000000005_400.pth", "is outside the experiment"),
        ("pole/checkpoint_p0/superseded/checkpoint_000000005_400.pth", "files that a push leaves out"),
    ],
)
def test_a_checkpoint_that_the_card_or_the_repository_cannot_have_is_refused_before_all_else(
    hub, trained, tmp_path, capsys, name, message
):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    shutil.copyfile(next(trained.glob("checkpoint_p0/checkpoint_*.pth")), file)
    before = contents(tmp_path)
    chosen = ["-r", NAME, f"--checkpoint={file}"]
    for evaluation in (TINY_EVAL, ["--with_evaluation=False"]):
        assert push_to_hub.main(["-d", str(trained), *chosen, *evaluation]) == 2
    playing = ["--experiment=pole", f"--train_dir={tmp_path}", "--no_render", "--max_num_episodes=1"]
    flags = [f"--checkpoint={file}", "--push_to_hub", f"--hf_repository={NAME}"]
    assert enjoy.main([*playing, *flags]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3 and all(message in line for line in errors)
    assert all("such as checkpoint_p0/checkpoint_000001000_64000.pth" in line for line in errors)
    assert not hub.requests and contents(tmp_path) == before


@pytest.mark.parametrize(
    "name", ["best_000000007_512_reward_-1.500.pth", "milestones/checkpoint_000000007_512.pth.milestone"]
)
def test_a_checkpoint_of_any_sort_is_pushed_by_its_path_also_through_a_link(hub, trained, tmp_path, name):
    file = trained / "checkpoint_p0" / name
    file.parent.mkdir(exist_ok=True)
    shutil.copyfile(next(trained.glob("checkpoint_p0/checkpoint_*.pth")), file)
    (tmp_path / "link").symlink_to(trained)
    path = tmp_path / "link" / "checkpoint_p0" / name
    assert push_to_hub.main([*PUSH, str(trained), "-r", NAME, f"--checkpoint={path}"]) == 0
    assert "for 512 env frames (7 SGD steps)" in hub.repositories[NAME].files["README.md"].decode()


def test_a_push_names_and_films_the_checkpoint_that_was_measured(hub, trained, tmp_path, monkeypatch):
    newest = max(trained.glob("checkpoint_p0/checkpoint_*.pth"))
    _, steps, frames = newest.stem.split("_")
    newest.with_name("checkpoint_000099999_999999.pth").write_bytes(newest.read_bytes()[:-100])  # damaged
    filmed = []

    def measure_while_training(*args):
        yield from measure_checkpoints(*args)
        shutil.copyfile(newest, newest.with_name("checkpoint_000100000_1000000.pth"))

    def play_and_keep(config, family):
        filmed.extend(config.evaluation.checkpoint)
        return play(config, family)

    monkeypatch.setattr(push_to_hub, "measure_checkpoints", measure_while_training)
    monkeypatch.setattr("sample_factory.evaluation.enjoy.play", play_and_keep)
    pushing = ["-d", str(trained), "-r", NAME, *TINY_EVAL, "--with_video=True", "--eval_episodes=1"]
    assert push_to_hub.main(pushing) == 0
    assert filmed == [str(newest)]
    files = hub.repositories[NAME].files
    assert json.loads(files["evaluation.json"])["checkpoints"] == [f"checkpoint_p0/{newest.name}"]
    assert json.loads(files["evaluation.json"])["evaluations"][0]["versions"] == [int(steps)]
    assert f"for {int(frames)} env frames ({int(steps)} SGD steps)" in files["README.md"].decode()


def test_a_token_that_may_only_read_an_existing_repository_loses_no_result(
    hub, trained, tmp_path, monkeypatch, capsys
):
    folder = trained
    hub.repositories[NAME] = Repository(private=False)
    monkeypatch.setenv("HF_TOKEN", READER)
    assert push_to_hub.main(["-d", str(folder), "-r", NAME, *TINY_EVAL]) == 1
    error = capsys.readouterr().err
    assert "answers 403" in error and "--with_evaluation=False pushes them" in error
    monkeypatch.setenv("HF_TOKEN", "hf_writer")
    assert push_to_hub.main([*PUSH, str(folder), "-r", NAME]) == 0
    assert "model-index" in header_of(hub.repositories[NAME].files["README.md"])
    assert not list(folder.glob(".push_to_hub*"))


def test_without_a_hub_a_push_and_a_load_are_one_line(hub, trained, tmp_path, monkeypatch, capsys):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # the port "discard": nothing listens
    assert push_to_hub.main([*PUSH, str(trained), "-r", NAME]) == 1
    assert load_from_hub.main(["-r", NAME, "-d", str(tmp_path / "new")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[2].split(",")[0].split("(")[0].strip() for line in lines] == [
        "cannot write to me/pole_repository: no answer from http://127.0.0.1:9",
        "cannot read me/pole_repository: no answer from http://127.0.0.1:9",
    ]
    assert not (tmp_path / "new").exists()


def repository_of(hub, files: dict[str, bytes], private: bool = False) -> None:
    hub.repositories[NAME] = Repository(private)
    hub.repositories[NAME].files = files


GOOD = {"cfg.json": b'{"env": "gym_CartPole-v1"}', "checkpoint_p0/checkpoint_000000001_4.pth": b"weights"}


@pytest.mark.parametrize(
    ("files", "flags", "message"),
    [
        (None, [], "has no such repository, or it is private: check the name"),
        (GOOD, ["--revision=v7"], "it has no such --revision"),
        ({"cfg.json": b"{}"}, [], "has no checkpoint"),
        ({"model.bin": b"x"}, [], "is no experiment of Sample Factory: it has no cfg.json"),
        ({**GOOD, "cfg.json": b"{"}, [], "cfg.json is not valid JSON"),
    ],
)
def test_what_cannot_be_loaded_is_one_line_and_leaves_nothing(hub, tmp_path, capsys, files, flags, message):
    if files is not None:
        repository_of(hub, files)
    train_dir = tmp_path / "train_dir"
    assert load_from_hub.main(["-r", NAME, "-d", str(train_dir), *flags]) in (1, 2)
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not train_dir.exists()


def test_a_private_repository_needs_a_token_that_may_read_it(hub, tmp_path, monkeypatch, capsys):
    repository_of(hub, GOOD, private=True)
    monkeypatch.delenv("HF_TOKEN")
    assert load_from_hub.main(["-r", NAME, "-d", str(tmp_path)]) == 1
    assert "or it is private" in capsys.readouterr().err
    monkeypatch.setenv("HF_TOKEN", "hf_writer")
    assert load_from_hub.main(["-r", NAME, "-d", str(tmp_path)]) == 0


def test_a_download_that_breaks_leaves_an_existing_experiment_as_it_is(hub, tmp_path, capsys):
    repository_of(hub, GOOD)
    load = ["-r", NAME, "-d", str(tmp_path), "--experiment=mine"]
    (tmp_path / "mine").mkdir()
    assert load_from_hub.main([*load, "--overwrite"]) == 2
    assert "is no experiment" in capsys.readouterr().err
    (tmp_path / "mine" / "cfg.json").write_text("{}")
    assert load_from_hub.main(load) == 2
    assert "--overwrite" in capsys.readouterr().err
    sha = hub.repositories[NAME].sha
    hub.broken.add(f"/{NAME}/resolve/{sha}/cfg.json")
    assert load_from_hub.main([*load, "--overwrite"]) == 1
    assert "answers 410" in capsys.readouterr().err
    assert contents(tmp_path) == {"mine/cfg.json": b"{}"}
    hub.broken.clear()
    assert load_from_hub.main([*load, "--overwrite"]) == 0
    loaded = contents(tmp_path / "mine")
    loaded.pop(".lock", None)
    assert loaded == GOOD and [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("name", "settings", "version"),
    [
        ("config.json", {"env": "doom_basic", "rnn_size": 512, "encoder_conv_architecture": "x"}, 2),
        ("cfg.json", {"env": "doom_basic", "hidden_size": 512, "encoder_subtype": "convnet_simple"}, 1),
    ],
)
def test_an_older_experiment_that_cannot_be_converted_is_kept_with_the_reason(
    hub, tmp_path, capsys, name, settings, version
):
    files = {name: json.dumps(settings).encode(), "checkpoint_p0/checkpoint_000000001_4.pth": b"weights"}
    repository_of(hub, files)
    assert load_from_hub.main(["-r", NAME, "-d", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    folder = tmp_path / "pole_repository"
    assert f"of Sample Factory {version} was not converted: {folder}/checkpoint_p0/checkpoint_" in shown.err
    assert f"sample_factory convert --source={folder} --experiment=" in shown.out
    assert contents(folder) == files and list(tmp_path.iterdir()) == [folder]


def test_an_experiment_that_version_2_has_pushed_is_converted(hub, old, tmp_path):
    repository_of(hub, {**contents(old("v2_mujoco_hopper")), "README.md": b"Hopper"})
    assert load_from_hub.main(["-r", NAME, "-d", str(tmp_path / "new")]) == 0
    folder = tmp_path / "new" / "pole_repository"
    assert sorted(contents(folder)) == [
        "README.md",
        "cfg.json",
        "checkpoint_p0/best_000000012_768_reward_17.106.pth",
        "checkpoint_p0/checkpoint_000000020_1280.pth",
    ]
    observation_space = gym.spaces.Box(-np.inf, np.inf, (11,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    policy = load_policy(folder, observation_space=observation_space, action_space=action_space)
    assert policy.act(np.zeros(11, np.float32)).shape == (3,)
    assert [path.name for path in folder.parent.iterdir()] == ["pole_repository"]


def test_an_experiment_that_is_being_trained_is_not_replaced(hub, tmp_path, capsys):
    from sample_factory.runtime.folder_lock import FolderLock

    repository_of(hub, GOOD)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "cfg.json").write_text("{}")
    lock = FolderLock(tmp_path / "mine")
    assert load_from_hub.main(["-r", NAME, "-d", str(tmp_path), "--experiment=mine", "--overwrite"]) == 2
    lock.release()
    assert "is training in" in capsys.readouterr().err
    assert (tmp_path / "mine" / "cfg.json").read_text() == "{}"


@pytest.mark.parametrize("command", [push_to_hub, load_from_hub])
def test_without_the_package_the_error_names_the_extra(command, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    place = ["-d", str(trained if command is push_to_hub else tmp_path)]
    assert command.main(["-r", NAME, *place]) == 2
    error = capsys.readouterr().err
    assert "pip install -e '.[hub]'" in error and error.count("\n") == 1


def test_what_only_has_a_meaning_on_this_machine_is_not_pushed_and_a_run_changes_no_file_of_a_push(tmp_path):
    kept = ["cfg.json", "league.json", "checkpoint_p0/a.pth", "checkpoint_p1/milestones/b.pth.milestone"]
    left = [".lock", "README.md", "my.mp4", ".cfg.json.tmp", "checkpoint_p0/donation.pth", ".git/HEAD"]
    left += [
        "checkpoint_p0/evaluated.pth",
        "checkpoint_p0/superseded/c.pth",
        "checkpoint_p0/.temp_checkpoint",
    ]
    for name in [*kept, *left]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "cfg.json").write_text(json.dumps({"env": ENV, "signature": "of this account"}))
    (tmp_path / "evaluation.json").write_text("results")
    extra = {"evaluation.json": tmp_path / "evaluation.json", "replay.mp4": tmp_path / "my.mp4"}
    with staged(tmp_path, extra) as folder:
        (tmp_path / "checkpoint_p0" / "a.pth").unlink()
        (tmp_path / "cfg.json").write_text("changed")
        found = contents(folder)
    assert found.pop("replay.mp4") == b"my.mp4" and found.pop("evaluation.json") == b"results"
    assert json.loads(found.pop("cfg.json")) == {"env": ENV}
    assert found == {name: name.encode() for name in kept if name != "cfg.json"}
    assert not list(tmp_path.glob(".push_to_hub*"))


class Invisible(gym.Wrapper):
    """An env that fails when it is drawn."""

    def render(self):
        raise RuntimeError("no picture today")


def test_an_env_that_cannot_be_drawn_is_pushed_without_a_video(hub, trained, capsys):
    register_env(
        "invisible_", lambda full_env_name, cfg, env_config, render_mode=None: Invisible(make_pole())
    )
    settings = json.loads((trained / "cfg.json").read_text())
    (trained / "cfg.json").write_text(json.dumps({**settings, "env": "invisible_pole"}))
    assert push_to_hub.main(["-d", str(trained), "-r", NAME, *TINY_EVAL, "--with_video=True"]) == 0
    assert "cannot be drawn" in capsys.readouterr().err
    pushed = hub.repositories[NAME].files
    assert "replay.mp4" not in pushed and "evaluation.json" in pushed
    assert "python -m YOUR.ENJOY.MODULE --env=invisible_pole" in pushed["README.md"].decode()


def make_pole() -> gym.Env:
    return gym.make("CartPole-v1", render_mode="rgb_array")


def test_results_of_a_policy_of_the_second_kind_name_both_kinds_and_are_not_used_for_another_policy(
    hub, tmp_path
):
    register_env("mixed_", lambda full_env_name: MixedCounting())
    save_untrained(tmp_path, "mixed_x", "--encoder_type=mlp", "--hidden_size=8")
    flags = ["-d", str(tmp_path / "tiny"), "-r", NAME]
    both = ["--policy_index", "1", "0"]
    assert push_to_hub.main([*flags, *TINY_EVAL, *both, "--num_workers=1"]) == 0
    assert len(json.loads(hub.repositories[NAME].files["evaluation.json"])["evaluations"]) == 1
    card = hub.repositories[NAME].files["README.md"].decode()
    file = "checkpoint_p1/checkpoint_000000001_4.pth"
    assert f"4 episodes of policies 0 and 1 together (`{file}` is one of them)" in card
    assert push_to_hub.main([*flags, "--with_evaluation=False"]) == 0
    card = hub.repositories[NAME].files["README.md"].decode()
    assert "## Results" not in card, "the file of policy 0 has the same name"

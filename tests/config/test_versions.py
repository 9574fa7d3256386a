"""A run says which versions it was made with, so that it can be repeated."""

import json
import subprocess

import pytest

from sample_factory import __version__
from sample_factory.__main__ import command
from sample_factory.config import versions as module
from sample_factory.config.parsing import parse_config
from sample_factory.config.versions import describe_versions, other_distributions, versions
from sample_factory.envs.env_registry import resolve_family
from sample_factory.launch.folder import prepare_folder


@pytest.fixture(autouse=True)
def not_cached():
    versions.cache_clear()
    yield
    versions.cache_clear()


def test_the_log_begins_with_the_versions_and_cfg_json_has_them(tmp_path):
    identity = ["--env=gym_CartPole-v1", f"--train_dir={tmp_path}", "--experiment=some"]
    config = parse_config(identity, resolve_family)
    folder = prepare_folder(config)
    config.save()
    folder.lock.release()
    first = (tmp_path / "some" / "sf_log.txt").read_text().splitlines()[0]
    saved = json.loads((tmp_path / "some" / "cfg.json").read_text())
    assert first.endswith(describe_versions(versions()))
    assert saved["versions"] == versions() and saved["versions"]["sample_factory"] == __version__
    again = parse_config(identity, resolve_family)
    assert again.resumed is not None
    assert "versions" not in again.unknown, "they are of the run that writes them"


def test_a_distribution_with_a_package_of_this_name_is_named_at_the_start_of_every_command(
    tmp_path, monkeypatch, capfd
):
    assert other_distributions() == [], "an editable installation is no other one"
    for name, packages in {
        "HASARD-0.2.0": "hasard\nsample_factory\n",
        "sample_factory-2.1.1": "sample_factory\nsf_examples\n",
        f"sample_factory-{__version__}": "sample_factory\n",
        "other-1.0": "sample_factory_2\n",
        "unversioned": "x\n",
    }.items():
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "top_level.txt").write_text(packages)
    monkeypatch.syspath_prepend(tmp_path)
    assert sorted(other_distributions()) == ["HASARD 0.2.0", "sample_factory 2.1.1"]
    assert command("export")(["--experiment=none", f"--train_dir={tmp_path}"]) == 2
    assert capfd.readouterr().err.count("HASARD 0.2.0 has installed") == 1


def test_the_commit_is_that_of_the_checkout_and_says_if_files_have_changed(tmp_path, monkeypatch):
    def git(*words):
        own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
        done = subprocess.run(["git", *own, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    file = tmp_path / "sample_factory" / "config" / "versions.py"
    file.parent.mkdir(parents=True)
    file.write_text("1")
    monkeypatch.setattr(module, "__file__", str(file))
    assert "commit" not in versions(), "installed as a package"
    git("init")
    git("add", ".")
    git("commit", "-m", "a")
    git("tag", "v1")
    versions.cache_clear()
    commit = git("rev-parse", "HEAD")[:12]
    assert versions()["commit"] == commit
    file.write_text("2")
    versions.cache_clear()
    assert versions()["commit"] == f"{commit}-dirty"


def test_versions_of_a_run_that_saved_none_are_only_the_first_number():
    assert describe_versions({}) == "Sample Factory 3"
    found = {"sample_factory": "3.1.0", "commit": "abc", "torch": "2.13.0"}
    assert describe_versions(found) == "Sample Factory 3.1.0 (commit abc), torch 2.13.0"

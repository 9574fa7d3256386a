import pytest

from sample_factory.config.flags import ConfigError
from sample_factory.experiment import folder
from sample_factory.experiment.folder import prepare_folder
from tests.counting import make_config


@pytest.fixture
def config(tmp_path):
    """The configuration of an experiment that exists and is to be overwritten."""
    config = make_config(
        train_dir=str(tmp_path), experiment="a", restart_behavior="overwrite", log_to_file=False
    )
    config.experiment_dir.mkdir()
    (config.experiment_dir / "cfg.json").write_text("{}")
    return config


def test_an_experiment_is_overwritten(config):
    prepare_folder(config).release()
    assert not (config.experiment_dir / "cfg.json").exists()


def test_a_folder_that_cannot_be_deleted_is_an_error_and_is_not_kept_locked(config, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(folder.shutil, "rmtree", refuse)
        for _ in range(2):  # the second one would find the folder in use
            with pytest.raises(
                ConfigError, match="cannot write to the experiment folder .*: Permission denied"
            ):
                prepare_folder(config)
    assert (config.experiment_dir / "cfg.json").exists()
    prepare_folder(config).release()

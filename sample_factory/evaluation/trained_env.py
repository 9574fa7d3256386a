"""The env in which an experiment was trained, for commands that may play its policies in another one."""

import contextlib
import logging
from collections.abc import Iterator

from sample_factory.checkpoints.checkpoint_error import CheckpointError
from sample_factory.config.config import Config
from sample_factory.config.experiment_folder import read_saved
from sample_factory.config.flags import ConfigError, shortened
from sample_factory.config.sections import OWN_FOLDER
from sample_factory.runtime.failures import one_line

log = logging.getLogger("sample_factory")


@contextlib.contextmanager
def explains_other_env(config: Config, warns: bool = True) -> Iterator[None]:
    """Wraps the start of playing: if --env is not the env of the training, a failure names both.

    Where playing there is possible, because the spaces are the same, a warning names both, if `warns`.
    Raises ConfigError instead of any exception of the wrapped code.
    """
    played = config.env_name
    folder = {name: vars(config.run)[name] for name in OWN_FOLDER}
    trained = read_saved(folder, {}, trusts=config.run.trust_code).values.get("env", played)
    if trained == played:
        yield
        return
    known = f"experiment {config.run.experiment} was trained on {shortened(str(trained))}"
    advice = "leave --env out to play there"
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{error} ({known}; {advice})") from error
    except CheckpointError as error:
        raise ConfigError(f"{known}, and its policy does not fit {played}; {advice}") from error
    except Exception as error:  # e.g. the env cannot be made with the saved flags of another family
        reason = one_line(error)
        raise ConfigError(f"{known}, and {played} fails with its flags ({reason}); {advice}") from error
    if warns:
        log.warning("The %s, and plays in %s now", known, played)

"""The flag --env_engine, of families whose envs exist in EnvPool and in another package."""

from typing import Any

from sample_factory.config.flags import flag
from sample_factory.envs import envpool_family

ENVPOOL = "envpool"
GYMNASIUM = "gymnasium"


def env_engine_flag(package: str) -> Any:
    """Returns the field of a family's flags. package: the one whose envs are made by "gymnasium"."""
    return flag(
        ENVPOOL,
        f"the package that simulates: envpool, which steps many copies in threads of a worker process, or "
        f"gymnasium, the envs of {package}",
        choices=(ENVPOOL, GYMNASIUM),
    )


def default_engine() -> str:
    """Returns envpool if it is installed, else gymnasium."""
    return ENVPOOL if envpool_family.is_installed() else GYMNASIUM

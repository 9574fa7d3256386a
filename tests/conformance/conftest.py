"""Collects what each test has compared, and prints one table at the end. `./all_tests.sh conformance`"""

from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.ledger import AT_LEAST, Tally

KEY = "tally"


@pytest.fixture
def count(record_property):
    """Returns count(package, tally), which adds what was compared to the table at the end."""

    def add(package: str, tally: Tally) -> None:
        tally = tally._replace(package=package)
        record_property(KEY, [package, tally.version, *tally[1:]])

    return add


def totals_of(terminalreporter) -> dict[tuple[str, str], Counter]:
    """Returns episodes, steps and differences of the tests that have passed, by (package, version)."""
    totals: dict[tuple[str, str], Counter] = {}
    for report in terminalreporter.stats.get("passed", []):
        for key, value in getattr(report, "user_properties", []):
            if key == KEY and report.when == "call":
                package, version, *numbers = value
                names = ("episodes", "steps", "differences")
                totals.setdefault((package, version), Counter()).update(dict(zip(names, numbers)))
    return totals


def pytest_sessionfinish(session):
    """A run of all tests fails if it has compared too few episodes of a package."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    is_whole = all(Path(argument).is_dir() for argument in session.config.args)
    if reporter is None or not is_whole or session.config.option.keyword or session.exitstatus:
        return
    if any(counts["episodes"] < AT_LEAST for counts in totals_of(reporter).values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    terminalreporter.section("compared with the plain packages")
    line = "{:36} {:>10} {:>10} {:>10} {:>12}"
    terminalreporter.line(line.format("package", "version", "episodes", "steps", "differences"))
    for (package, version), counts in sorted(totals_of(terminalreporter).items()):
        few = f"  should be {AT_LEAST}" if counts["episodes"] < AT_LEAST else ""
        columns = (counts["episodes"], counts["steps"], counts["differences"])
        terminalreporter.line(line.format(package, version, *columns) + few)

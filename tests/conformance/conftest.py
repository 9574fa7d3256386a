"""Collects what each test has compared, and prints one table at the end. `./all_tests.sh conformance`"""

from collections import Counter

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


def pytest_terminal_summary(terminalreporter):
    """Prints the table. The whole run compares at least AT_LEAST episodes for each package, see the tests."""
    totals: dict[tuple[str, str], Counter] = {}
    for report in terminalreporter.stats.get("passed", []):
        for key, value in getattr(report, "user_properties", []):
            if key == KEY and report.when == "call":
                package, version, *numbers = value
                names = ("episodes", "steps", "differences")
                totals.setdefault((package, version), Counter()).update(dict(zip(names, numbers)))
    terminalreporter.section("compared with the plain packages")
    line = "{:36} {:>10} {:>10} {:>10} {:>12}"
    terminalreporter.line(line.format("package", "version", "episodes", "steps", "differences"))
    for (package, version), counts in sorted(totals.items()):
        few = f"  fewer than {AT_LEAST}" if counts["episodes"] < AT_LEAST else ""
        columns = (counts["episodes"], counts["steps"], counts["differences"])
        terminalreporter.line(line.format(package, version, *columns) + few)

"""Coverage-guided fuzzing: atheris searches each property-based test for some time.

    python -m tests.coverage_fuzz --seconds 60

It prints a line for each test. If one fails, the end of its output follows, the input that failed
is kept in the folder of `--failures`, and the status is 1.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

OPTIONS = "LIBFUZZER_OPTIONS"  # the variable of the searches' environment, separated by spaces
_MEGABYTES = 8000  # of memory, more than which is a failure
_PYTEST = [sys.executable, "-m", "pytest", "-q", "--capture=no", "-p", "no:xdist"]


def main():
    options = _parser().parse_args()
    failures = pathlib.Path(options.failures).absolute()
    failures.mkdir(parents=True, exist_ok=True)
    limits = [f"-max_total_time={options.seconds}", f"-rss_limit_mb={_MEGABYTES}"]
    limits += [f"-artifact_prefix={failures}/", "-print_final_stats=1"]
    environment = os.environ | {OPTIONS: " ".join(limits)}
    outcomes = [_search(test, environment) for test in _tests(options.tests)]
    return 0 if outcomes and all(outcomes) else 1


def _tests(names):
    """The property-based tests among files and names of tests."""
    command = [*_PYTEST, "--collect-only", "-m", "hypothesis", *names]
    listing = subprocess.run(command, capture_output=True, text=True).stdout
    return [line for line in listing.splitlines() if "::" in line]


def _search(test, environment):
    """Searches one test, and returns whether it passed."""
    command = [*_PYTEST, "-p", "tests.helpers.coverage_fuzzing", test]
    process = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = process.stdout.decode(errors="replace")
    runs = re.search(r"number_of_executed_units: *(\d+)", output)
    passed = process.returncode == 0 and runs is not None
    covered = re.findall(r"\bcov: (\d+)", output)
    found = f"{runs[1] if runs else 0} inputs, {covered[-1] if covered else 0} branches"
    print(f"{'passed' if passed else 'FAILED'}  {test}  {found}", flush=True)
    if not passed:
        print(output[-4000:])
    return passed


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tests.coverage_fuzz", description=__doc__)
    parser.add_argument("tests", nargs="*", default=["tests"], help="files or names of tests")
    parser.add_argument("--seconds", type=int, default=60, help="for each test")
    parser.add_argument("--failures", default="build/fuzz", help="a folder for inputs that failed")
    return parser


if __name__ == "__main__":
    sys.exit(main())

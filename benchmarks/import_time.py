"""Import time of gpt1_keras beside keras_hub's, each in fresh processes, alternately.

python -m benchmarks.import_time
python -m benchmarks.import_time --before DIR    # and another commit's
"""

import statistics
import subprocess
import sys

from benchmarks.harness.alternate import alternate, timed
from benchmarks.harness.program import Program, table

_ROUNDS = 5


def main():
    program = Program("import_time", __doc__)
    program.add("--before", metavar="DIR", help="a checkout of another commit")
    options = program.parse()
    turns = {name: timed(_import, name, None) for name in ("keras_hub", "gpt1_keras")}
    if options.before:
        turns["gpt1_keras, before"] = timed(_import, "gpt1_keras", options.before)
    seconds = alternate(turns, _ROUNDS)
    rows = [[name, f"{statistics.median(each):.2f}"] for name, each in seconds.items()]
    program.report(f"Medians of {_ROUNDS} after one.", table(["import", "s"], rows))


def _import(package, folder):
    command = [sys.executable, "-c", f"import {package}"]
    subprocess.run(command, check=True, cwd=folder, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()

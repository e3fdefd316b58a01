"""Import time of gpt1_keras beside keras_hub's, each in fresh processes, in turns.

python -m benchmarks.import_time
"""

import statistics
import subprocess
import sys
import time

from benchmarks.common.setting import describe, table

_ROUNDS = 5


def main():
    seconds = {"keras_hub": [], "gpt1_keras": []}
    for _ in range(_ROUNDS + 1):
        for package, times in seconds.items():
            started = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", f"import {package}"], check=True, stderr=subprocess.DEVNULL
            )
            times.append(time.perf_counter() - started)
    rows = [[name, f"{statistics.median(times[1:]):.2f}"] for name, times in seconds.items()]
    print(
        f"{describe()}. Medians of {_ROUNDS} after one. `python -m benchmarks.import_time`\n\n"
        f"{table(['import', 's'], rows)}"
    )


if __name__ == "__main__":
    main()

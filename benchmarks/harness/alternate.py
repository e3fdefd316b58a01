"""Turns: things are timed alternately, so that a machine's changing speed affects all equally.

Results are medians over the rounds, and medians of the ratios of neighbouring turns.
"""

import statistics
import time

REST = 0.3  # seconds between turns, because threads spin for a while after their work


def alternate(turns, rounds, warmup=1, rest=0.0):
    """Calls functions one after another, in each of the rounds.

    Args:
        turns: functions without arguments, by name.
        rounds: int, how often each is called.
        warmup: int, earlier rounds whose results are left out.
        rest: seconds to wait before each call.

    Returns:
        What the functions returned, lists of `rounds` results, by name.
    """
    results = {name: [] for name in turns}
    for _ in range(warmup + rounds):
        for name, turn in turns.items():
            time.sleep(rest)
            results[name].append(turn())
    return {name: found[warmup:] for name, found in results.items()}


def timed(function, *arguments):
    """Makes a turn that calls a function and returns the seconds that the call took."""

    def turn():
        started = time.perf_counter()
        function(*arguments)
        return time.perf_counter() - started

    return turn


def speedup(ours, others):
    """Returns how many times as fast ours is: the median ratio of neighbouring turns' seconds."""
    return statistics.median(other / our for our, other in zip(ours, others, strict=True))

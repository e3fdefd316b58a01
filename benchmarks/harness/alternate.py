"""Turns: two or more things are timed alternately, so a machine's changing speed affects all alike.

The figures that count are medians over the rounds, and medians of the ratios of neighbouring turns.
"""

import statistics
import time

REST = 0.3  # seconds between turns, because threads spin for a while after their work


def alternate(turns, rounds, warmup=1, rest=0.0):
    """Calls functions one after the other, in each of the rounds.

    Args:
        turns: functions without arguments, by name.
        rounds: int, how often each is called.
        warmup: rounds before these, whose results are left out.
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
    """A turn that calls a function; it returns the seconds that the call took."""

    def turn():
        started = time.perf_counter()
        function(*arguments)
        return time.perf_counter() - started

    return turn


def speedup(ours, others):
    """How many times as fast ours is: the median ratio of neighbouring turns' seconds."""
    return statistics.median(other / our for our, other in zip(ours, others, strict=True))

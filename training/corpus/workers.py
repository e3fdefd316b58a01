"""Runs a function over units of work, in processes of this machine or with Apache Beam."""

import concurrent.futures
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gpt1_keras.beam import run_in_beam
from gpt1_keras.cli import progress
from gpt1_keras.exit_status import signals_handled
from gpt1_keras.quiet import silent_imports

with silent_imports():  # in the processes that a run starts, which nobody else keeps silent
    import tensorflow as tf
from training.corpus.shards import ShardError, Unit

_POLL_SECONDS = 0.2  # between two checks for signals
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_Write = Callable[[Unit], dict[str, Any]]


def run_in_processes(function: _Write, units: list[Unit], processes: int) -> list[dict[str, Any]]:
    """Calls a function for each unit, in processes of this machine, and shows progress.

    Args:
        function: picklable.
        processes: how many; with 1, this process does all.

    Raises:
        ShardError: a process died. An error of the function is raised again, and all workers stop.
    """
    if processes == 1:
        return [function(unit) for unit in progress(units, "Writing shards")]
    # TensorFlow does not survive a fork after it has run, so a server imports it and forks workers.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["training.corpus.workers"])
    others = set(multiprocessing.active_children())
    signals: list[int] = []  # that wait: an exception in the pool's code could leave a lock held
    with (
        signals_handled(lambda number, _: signals.append(number), *_SIGNALS),
        concurrent.futures.ProcessPoolExecutor(processes, context, _set_up_worker) as pool,
    ):
        futures = [pool.submit(function, unit) for unit in units]
        try:
            for future in progress(_completed(futures, signals), "Writing shards", len(units)):
                future.result()
        except BaseException as error:
            # A unit may take minutes: do not wait for it after an error or Ctrl-C.
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            if isinstance(error, concurrent.futures.BrokenExecutor):
                raise ShardError(
                    "A worker process died, perhaps for lack of memory: try fewer --processes."
                ) from None
            raise
        return [future.result() for future in futures]


def _completed(
    futures: list[concurrent.futures.Future], signals: list[int]
) -> Iterator[concurrent.futures.Future]:
    """Yields futures as they complete; raises KeyboardInterrupt soon after a signal."""
    pending = set(futures)
    while pending:
        done, pending = concurrent.futures.wait(
            pending, _POLL_SECONDS, concurrent.futures.FIRST_COMPLETED
        )
        if signals:
            raise KeyboardInterrupt(signals[0])
        yield from done


def _set_up_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    tf.config.set_visible_devices([], "GPU")  # otherwise each process would take the GPU's memory
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _exit_with_parent() -> None:
    """Ends a worker whose parent was killed; otherwise it would wait for work forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def run_in_pipeline(
    function: _Write,
    units: list[Unit],
    folder: str,
    runner: str,
    processes: int,
    flags: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Calls a function for each unit in an Apache Beam pipeline; see `gpt1_keras.beam`.

    Args:
        processes: how many, for runners of this machine.

    Raises:
        ShardError: a shard could not be written.
    """
    here = (
        f"--direct_num_workers={processes}",
        f"--direct_running_mode={'in_memory' if processes == 1 else 'multi_processing'}",
    )
    try:
        return run_in_beam(function, units, folder, runner, [*here, *flags])
    except Exception as error:
        # Runners add to the message, or wrap it in the text of tracebacks.
        text = f"{type(error).__name__}: {error}"
        line = re.search(rf"{ShardError.__name__}: (.*?)( \[while running|$)", text, re.M)
        if line is None:
            raise
        raise ShardError(line[1]) from error

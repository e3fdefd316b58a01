"""Runs a function over units of work, in processes of this machine or with Apache Beam."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import re
import signal
import threading

import tensorflow as tf
import tqdm

from training.corpus.shards import ShardError

_PATIENCE = 0.2  # seconds between looks at whether Ctrl-C was pressed


def run_in_processes(function, units, processes):
    """Calls a function for each unit, in processes of this machine, and shows the progress.

    Args:
        function: picklable function of a unit.
        units: list.
        processes: int; 1 is this one.

    Returns:
        list of the results, in the order of the units.

    Raises:
        ShardError: a process died. What the function raises is raised again; the others stop.
    """
    progress = tqdm.tqdm(total=len(units), unit="shard")
    with progress:
        if processes == 1:
            results = []
            for unit in units:
                results.append(function(unit))
                progress.update()
            return results
        return _run_in_pool(function, units, processes, progress)


def _run_in_pool(function, units, processes, progress):
    # TensorFlow does not survive a fork.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with (
        _late_interrupts() as interrupted,
        concurrent.futures.ProcessPoolExecutor(processes, context, _set_up_worker) as pool,
    ):
        futures = pending = [pool.submit(function, unit) for unit in units]
        try:
            while pending:
                done, pending = concurrent.futures.wait(
                    pending, _PATIENCE, concurrent.futures.FIRST_COMPLETED
                )
                for future in done:
                    future.result()
                    progress.update()
                if interrupted.is_set():
                    raise KeyboardInterrupt
        except BaseException as error:
            # Units may take minutes; whoever waits for the error, or has pressed Ctrl-C, need not.
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            if isinstance(error, concurrent.futures.BrokenExecutor):
                raise ShardError(
                    "A worker process died, perhaps for lack of memory: try fewer --processes."
                ) from None
            raise
        return [future.result() for future in futures]


@contextlib.contextmanager
def _late_interrupts():
    """Ctrl-C sets an event: inside the pool's code it could leave a lock taken, for ever."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted  # which gets no signals
        return
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _set_up_worker():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    tf.config.set_visible_devices([], "GPU")  # else each process would take the GPU's memory
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _exit_with_parent():
    """Ends a worker whose parent was killed; it would wait for work for ever."""
    multiprocessing.parent_process().join()
    os._exit(1)


def run_in_beam(function, finish, units, runner, processes, flags=()):
    """Calls a function for each unit in an Apache Beam pipeline, then one for all results.

    Args:
        function: picklable function of a unit, which gives a dict with `tokens`, `documents` and
            `empty_documents`; these are counters of the pipeline.
        finish: picklable function of the list of the results, in any order.
        units: list.
        runner: str, the name of Beam's runner. `FnApiRunner` is the one of this machine.
            (`DirectRunner` would first try to download another.)
        processes: int, of the runners of this machine.
        flags: list of str, further options of Beam's.

    Raises:
        ValueError: Beam is not installed.
        ShardError: a unit failed.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError:
        raise ValueError('A runner needs Apache Beam: pip install "gpt1-keras[beam]".') from None
    options = PipelineOptions(
        [
            f"--runner={runner}",
            f"--direct_num_workers={processes}",
            f"--direct_running_mode={'in_memory' if processes == 1 else 'multi_processing'}",
            *flags,
        ]
    )

    def count(result):
        for name in ("tokens", "documents", "empty_documents"):
            beam.metrics.Metrics.counter("corpus", name).inc(result[name])
        return result

    try:
        with beam.Pipeline(options=options) as pipeline:
            _ = (
                pipeline
                | beam.Create(units)
                | beam.Reshuffle()
                | "Write shards" >> beam.Map(function)
                | "Count" >> beam.Map(count)
                | beam.combiners.ToList()
                | "Write index" >> beam.Map(finish)
            )
    except Exception as error:
        # Runners add to the message, or wrap it in the text of one traceback or more.
        text = f"{type(error).__name__}: {error}"
        line = re.search(rf"{ShardError.__name__}: (.*?)( \[while running|$)", text, re.M)
        if line is None:
            raise
        raise ShardError(line[1]) from error

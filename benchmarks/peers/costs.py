"""What `benchmarks.costs` compares, each in a process of its own.

    python -m benchmarks.peers.costs NAME --job FILE

A turn, as `benchmarks.common.turns` says, answers one of the job's batches for some time; its fact
is the median of an answer's seconds.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import time

from benchmarks.common.turns import Turns, summarize
from benchmarks.peers.classifiers import PEERS, peer_scores

OURS = {f"gpt1_keras-{each}": f"gpt1_keras, {each}" for each in ("float32", "bfloat16", "int8")}


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.costs")
    parser.add_argument("name", choices=[*OURS, *PEERS])
    parser.add_argument("--job", type=pathlib.Path, required=True)
    options = parser.parse_args()
    job = json.loads(options.job.read_text())
    with contextlib.redirect_stdout(sys.stderr):  # turns are told on the standard output
        answer = _ours(job["exports"][options.name]) if options.name in OURS else None
        answer = answer or peer_scores(options.name, job["size"], job["tokenizer"], job["folder"])
    turns = Turns()
    for number in range(job["rounds"] * len(job["batches"])):
        texts = job["batches"][number % len(job["batches"])]
        turns.begin()
        begun, seconds = time.perf_counter(), []
        while not seconds or time.perf_counter() - begun < job["seconds"]:
            started = time.perf_counter()
            answer(texts)
            seconds.append(time.perf_counter() - started)
        turns.end(median=statistics.median(seconds))
    summarize()


def _ours(path):
    """A function from texts to their scores, by an export in TensorFlow's C++ runtime."""
    import tensorflow as tf

    from serving.export_names import DEFAULT_SIGNATURE
    from serving.server.models.servable import Servable

    servable = Servable("model", 1, pathlib.Path(path))
    return lambda texts: servable.predict(DEFAULT_SIGNATURE, {"text": tf.make_tensor_proto(texts)})


if __name__ == "__main__":
    main()

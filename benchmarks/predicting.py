"""Predictions for a file of texts, beside Hugging Face's pipeline on the same texts.

    python -m benchmarks.predicting

Classifiers of one size have random weights and the original vocabulary. Ours goes from a CSV file
to a CSV file, as `serving.predict` does with an export. The pipeline, `text-classification` in
torch, gets the texts as a list, one at a time and in batches. "The graph alone" is our export from
token ids to answers, in batches of similar lengths: without reading, tokenizing and writing. Texts
are sentences of SST-2 or passages of RACE, all different. All take turns, each in its own process;
figures are medians. The machine must be idle.
"""

import contextlib
import csv
import itertools
import pathlib
import statistics
import sys
import tempfile

from benchmarks.harness.measured_models import export_missing
from benchmarks.harness.program import Program, table
from benchmarks.harness.texts import data_set_texts
from benchmarks.harness.turns import REST, Worker, alternate
from gpt1_keras.cli import exit_status

_BATCH_SIZE = 32
_LEAST_CHARACTERS = {"glue/sst2": 0, "race/middle": 600}  # RACE has questions and answers too


def main():
    program = Program("predicting", __doc__, "--data-dir", "--tokenizer", "--exports", "--size")
    what = "the texts' data set (default: %(default)s)"
    program.add("--data-set", choices=_LEAST_CHARACTERS, default="glue/sst2", help=what)
    program.add("--rows", type=int, default=10_000, help="default: %(default)s")
    program.add("--rounds", type=int, default=3, help="after one (default: %(default)s)")
    program.add("--ours", action="store_true", help="without the pipeline")
    options = program.parse()
    texts = data_set_texts(options.data_set, options.data_dir)
    long = (text for text in texts if len(text) >= _LEAST_CHARACTERS[options.data_set])
    texts = list(itertools.islice(dict.fromkeys(long), options.rows))
    export = export_missing(
        ["unmerged"], options.size, options.tokenizer, pathlib.Path(options.exports, options.size)
    )["unmerged"]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "texts.csv")
        with open(path, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["text"], *([text] for text in texts)])
        seconds, megabytes = _measure(options, str(export), str(path))
    first = next(iter(seconds))
    rows = [
        [
            name,
            f"{len(texts) / statistics.median(found):.1f}",
            f"{statistics.median(seconds[first]) / statistics.median(found):.2f}",
            f"{megabytes[name]:.0f}",
        ]
        for name, found in seconds.items()
    ]
    facts = (
        f"Size {options.size!r}; {len(texts):,} texts of {options.data_set}, "
        f"{statistics.mean(map(len, texts)):.0f} characters each; {options.rounds} rounds."
    )
    header = [f"{options.data_set}, {options.size}", "rows/s", f"/ {first}", "peak memory, MB"]
    program.report(facts, table(header, rows))


def _measure(options, export, path):
    """Returns the seconds of each round, and the peak of memory in MB, by name."""
    ours = {"export": export, "path": path}
    peer = {"size": options.size, "tokenizer": str(options.tokenizer), "path": path}
    workers = {
        "serving.predict": ("peers.ours:predict", ours),
        "the graph alone": ("peers.ours:predict_from_ids", ours),
    }
    if not options.ours:
        for size in (1, _BATCH_SIZE):
            name = f"pipeline, {'one at a time' if size == 1 else f'batches of {size}'}"
            workers[name] = "peers.hugging_face:predict", {**peer, "batch_size": size}
    rounds = 1 + options.rounds  # the first warms up
    with contextlib.ExitStack() as stack:
        running = {
            name: stack.enter_context(Worker(function, rounds=rounds, **arguments))
            for name, (function, arguments) in workers.items()
        }
        turns = {name: worker.turn for name, worker in running.items()}
        found = alternate(turns, options.rounds, rest=REST)
        megabytes = {name: each.summary()["peak_memory"] / 1e6 for name, each in running.items()}
    return {name: [each["seconds"] for each in facts] for name, facts in found.items()}, megabytes


if __name__ == "__main__":
    sys.exit(exit_status(main))

"""The time of an answer by length of text and size of batch, beside peers and the limit.

    python -m benchmarks.costs
    python -m benchmarks.costs --before DIR    # and beside exports that another commit wrote
    python -m benchmarks.costs --callers 2     # who ask at once, each answered by one thread

Classifiers with random weights answer texts of whole words, from strings to scores: our exports in
TensorFlow's C++ runtime, and Hugging Face's model in torch, ONNX Runtime and OpenVINO. They take
turns, each in its own process; the machine must be idle. The second table has the first answer of
each turn, after a rest in which threads fall asleep and caches grow cold; the first has the others.
The limit is the time that the necessary matrix products take at the speed of the fastest product,
measured in each round. Exports that the folder `--exports` holds already are not made again.
"""

import contextlib
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.harness.matrix_product import LIMIT, fastest_of, least_flops, product_workers
from benchmarks.harness.measured_models import SIZES
from benchmarks.harness.program import Program, table
from benchmarks.harness.texts import WholeWords
from benchmarks.harness.turns import REST, Worker, alternate
from benchmarks.peers import add_peers, measured_here
from benchmarks.peers.classifiers import CLASSIFIERS, OURS, load_classifier, make_classifiers
from benchmarks.peers.hugging_face import load_tokenizer
from gpt1_keras.cli import exit_status

LENGTHS = (16, 32, 64, 128, 256, 508)  # ours adds two special tokens
BATCHES = (1, 2, 4, 8, 16, 32)
BATCHES_LENGTH = 32
_CALIBRATION_TEXTS = 64


def main():
    program = Program("costs", __doc__, "--tokenizer", "--exports", "--size")
    peers = {name: peer for name, peer in CLASSIFIERS.items() if name != "ours-unmerged"}
    add_peers(program, peers)
    program.add("--rounds", type=int, default=3, help="after one (default: %(default)s)")
    what = "of a batch in a round (default: %(default)s)"
    program.add("--seconds", type=float, default=0.5, help=what)
    what = "who ask at once; if more than one, each is answered by one thread (%(default)s)"
    program.add("--callers", type=int, default=1, help=what)
    program.add("--before", metavar="DIR", help="--exports of another commit, beside ours")
    options = program.parse()
    names, left_out = measured_here(options.only, peers)
    length = SIZES[options.size]["max_sequence_length"]
    shapes = [(1, each) for each in LENGTHS if each < length]
    shapes += [(each, BATCHES_LENGTH) for each in BATCHES if each > 1]
    words = WholeWords(load_tokenizer(options.tokenizer))
    calibration = [words.text(BATCHES_LENGTH) for _ in range(_CALIBRATION_TEXTS)]
    _, setting = make_classifiers(
        names, options.size, options.tokenizer, options.exports, calibration
    )
    setting["callers"] = options.callers
    workers = {peers[name].label: {"name": name, **setting} for name in names}
    if options.before:
        for name in OURS.keys() & names:
            before = {**setting, "name": name, "folder": options.before}
            workers[f"{peers[name].label}, before"] = before
    batches = [  # all texts differ, as exports compute equal ones once
        [[words.text(tokens) for _ in range(count)] for _ in range(options.callers)]
        for count, tokens in shapes
    ]
    measured, gigaflops = _measure(workers, batches, options)
    tables = []
    for milliseconds in measured.values():
        rows = []
        for number, (count, tokens) in enumerate(shapes):
            limit = 1e-6 * least_flops(SIZES[options.size], tokens) / gigaflops
            cells = [limit, *(milliseconds[label][number] / count for label in workers)]
            rows.append([str(count), str(tokens), *(f"{cell:.1f}" for cell in cells)])
        tables.append(table(["texts", "tokens each", LIMIT, *workers], rows, labels=2))
    facts = (
        f"Size {options.size!r}; ms a text with {options.callers} callers, medians of "
        f"{options.rounds} rounds after one. The fastest product of float32: {gigaflops:.0f} "
        "GFLOP/s."
    )
    warm, rested = tables
    program.report(facts, warm, f"The first answer after {REST} s of rest:", rested, left_out)


def answer(turns, name, batches, rounds, seconds, callers, **setting):
    """Answers one batch for each caller for some time in each turn; reports two times.

    `rested` is the time from one answer to the next when each caller asks first, and `warm` the
    median of the times after that.
    """
    answer_batch = load_classifier(name, callers=callers, **setting)

    def call(batch):
        begun, taken = time.perf_counter(), []
        while len(taken) < 2 or time.perf_counter() - begun < seconds:
            started = time.perf_counter()
            answer_batch(batch)
            taken.append(time.perf_counter() - started)
        return taken

    with ThreadPoolExecutor(callers) as pool:
        for each in batches * rounds:
            turns.begin()
            called = list(pool.map(call, each))
            rested = statistics.median(taken[0] for taken in called)
            warm = statistics.median(seconds for taken in called for seconds in taken[1:])
            turns.end(rested=rested / callers, warm=warm / callers)


def _measure(workers, batches, options):
    """Returns each batch's milliseconds, warm and rested, by label; and the products' GFLOP/s."""
    rounds = 1 + options.rounds
    job = {"batches": batches, "rounds": rounds, "seconds": options.seconds}
    speeds, seconds = [], []
    with contextlib.ExitStack() as stack:
        products = product_workers(stack, "float32", options.size, rounds)
        products = {name: worker.turn for name, worker in products.items()}
        turns = {
            label: stack.enter_context(Worker("costs:answer", **arguments, **job)).turn
            for label, arguments in workers.items()
        }
        for _ in range(rounds):
            speeds += fastest_of(alternate(products, 1, warmup=0, rest=REST))
            seconds.append(alternate(turns, len(batches), warmup=0, rest=REST))
    measured = {
        which: {
            label: [
                1e3 * statistics.median(of_round[label][number][which] for of_round in seconds[1:])
                for number in range(len(batches))
            ]
            for label in workers
        }
        for which in ("warm", "rested")
    }
    return measured, statistics.median(speeds[1:])


if __name__ == "__main__":
    sys.exit(exit_status(main))

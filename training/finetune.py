"""Fine-tunes a model on one of the paper's data sets, or on your own.

    python -m training.finetune --task sst2 --preset NAME --data-dir DIR --output DIR
    python -m training.finetune --train FILE --validation FILE --preset NAME --output DIR

FILE is a .csv, .tsv or .jsonl whose columns say what the task is; see `training.datasets.user_files`.

Interrupted, the same command goes on where the last checkpoint left it. DIR/best is the preset of
the best epoch on the validation split, DIR/result.json its score, DIR/logs are for TensorBoard.
"""

import argparse
import dataclasses
import sys
import time

import keras
import tensorflow as tf

import gpt1_keras
from gpt1_keras.cli import check_at_least_one
from gpt1_keras.files import atomic_path
from gpt1_keras.presets import CONFIGURATIONS, PRETRAINED, configuration, find_preset
from gpt1_keras.presets.tokenizers import check_normalization
from training.datasets.labelled_examples import (
    batch_order,
    count_tokens,
    load_examples,
    make_batches,
)
from training.datasets.task_models import build_model
from training.datasets.tasks import TASKS, find_task
from training.datasets.user_files import find_user_file_task
from training.evaluation.scoring import predict, score
from training.runs.run_folder import Run

_BATCHES_PER_CHECKPOINT = 200


@dataclasses.dataclass(frozen=True)
class FinetuneOptions:
    """What determines a run; a run goes on only under the same options.

    Raises:
        FileNotFoundError: the preset is not there.
        ValueError: an unknown task or configuration, not one of `task` and files or of `preset` and
            `config`, or a number below 1.
    """

    task: str | None = None
    train: str | None = None
    validation: str | None = None
    preset: str | None = None
    transfer: str = "all"
    config: str | None = None
    tokenizer: str | None = None
    num_merges: int = 8000
    normalization: str | None = None
    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 6.25e-5
    lm_coefficient: float = 0.5
    dropout: float | None = None
    limit_examples: int | None = None
    seed: int = 0

    def __post_init__(self):
        if (self.task is None) == (self.train is None) or (self.train is None) != (
            self.validation is None
        ):
            raise ValueError("Give either --task, or both --train and --validation.")
        if self.task is not None:
            find_task(self.task)
        check_at_least_one(self, "num_merges", "epochs", "batch_size", "limit_examples")
        check_normalization(self.normalization)
        if self.transfer not in ("all", "none") and not self.transfer.isdecimal():
            raise ValueError(f"transfer must be all, none or a number. Received: {self.transfer}.")
        if (self.preset is None) == (self.config is None):
            raise ValueError("Give either --preset, to fine-tune, or --config, to start afresh.")
        if self.config is not None:
            configuration(self.config)
        else:
            find_preset(self.preset)


def finetune(options, output, data_dir=None, download=False, verbose="auto"):
    """Runs, or goes on with, a fine-tuning.

    Args:
        options: `FinetuneOptions`.
        output: path of the run's folder.
        data_dir: path of the prepared data sets.
        download: bool, whether to fetch a data set that is not there.
        verbose: progress bars, as in `keras.Model.fit`.

    Returns:
        The result, a dict, as in `result.json`.

    Raises:
        FileNotFoundError: the data set is not there.
        ValueError: `output` holds a run with other options, or a damaged checkpoint.
    """
    run = Run(output, dataclasses.asdict(options), keep=1)
    if run.result:
        return run.result
    run.start()
    if options.task is None:
        task = find_user_file_task(options.train, options.validation)
    else:
        task = find_task(options.task)
    train = load_examples(task, "train", data_dir, download).labelled()
    if options.limit_examples is not None:
        train = train.sample(options.limit_examples, options.seed)
    validation = load_examples(task, "validation", data_dir, download).labelled()
    keras.utils.set_random_seed(options.seed)
    model = build_model(options, task, train)

    started = time.monotonic()
    lengths = count_tokens(train, model.preprocessor)
    steps = -(-len(train) // options.batch_size)
    model.compile(
        gpt1_keras.optimizer.finetuning_optimizer(options.learning_rate, steps * options.epochs),
        lm_coefficient=options.lm_coefficient,
    )
    run.checkpoints.restore(model)
    for epoch in range(len(run.history), options.epochs):
        order = batch_order(lengths, options.batch_size, options.seed, epoch)
        order = order[int(model.optimizer.iterations) - epoch * steps :]
        if order:  # else the run was cut off between the epoch's end and its score
            model.fit(
                make_batches(train, order),
                epochs=epoch + 1,
                initial_epoch=epoch,
                callbacks=[
                    keras.callbacks.TensorBoard(run.folder / "logs"),
                    keras.callbacks.LambdaCallback(on_train_batch_end=_saver(run, model)),
                ],
                verbose=verbose,
            )
        scores = score(validation, predict(model, validation, verbose), task.metrics)
        _finish_epoch(run, model, scores)
        print(f"Epoch {epoch + 1}: validation {_line(scores)}")
    metric = task.metrics[0]
    best = max(run.history, key=lambda past: past[metric])
    return run.finish(
        {
            "score": best[metric],
            "metric": metric,
            "best_epoch": best["epoch"],
            "class_names": train.class_names,
            "train_examples": len(train),
            "validation_examples": len(validation),
            "decoder": type(model.backbone).__name__,
            "parameters": model.count_params(),
            "seconds": round(time.monotonic() - started, 1),
            "tensorflow": tf.__version__,
        }
    )


def _saver(run, model):
    """A callback that saves a checkpoint every so many batches."""

    def on_batch_end(batch, logs=None):
        if (batch + 1) % _BATCHES_PER_CHECKPOINT == 0:
            run.checkpoints.save(model, int(model.optimizer.iterations))

    return on_batch_end


def _finish_epoch(run, model, scores):
    """Keeps a checkpoint, the model if it is the best so far, and last the epoch's scores.

    So wherever this is cut off, a resumed run scores the epoch again.
    """
    run.checkpoints.save(model, int(model.optimizer.iterations))
    metric, value = next(iter(scores.items()))
    if value > max((past[metric] for past in run.history), default=float("-inf")):
        with atomic_path(run.folder / "best") as temporary:
            model.save_to_preset(temporary)
    epoch = len(run.history)
    with tf.summary.create_file_writer(str(run.folder / "logs" / "validation")).as_default():
        tf.summary.scalar("epoch_score", value, step=epoch)
    run.add({"epoch": epoch + 1, **scores})


def _line(scores):
    """Scores for people to read."""
    return ", ".join(f"{name} {value:.4f}" for name, value in scores.items())


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m training.finetune",
        description="Fine-tune a model on one of the paper's data sets, or on your own.",
        epilog="Interrupted, the same command goes on where the last checkpoint left it.",
    )
    add = parser.add_argument
    add("--task", help=f"one of {', '.join(sorted(TASKS))}; or else")
    add("--train", metavar="FILE", help="your own .csv, .tsv or .jsonl, and")
    add("--validation", metavar="FILE", help="another, to choose the best epoch by")
    add("--output", required=True, help="folder of the run: best/, result.json, logs/")
    start = parser.add_argument_group("what to start from (one of --preset and --config)")
    start.add_argument("--preset", help=f"{', '.join(PRETRAINED)}, or a preset's folder")
    start.add_argument(
        "--transfer",
        help="with --preset: all; none, for fresh weights; or N, for embeddings and the first N "
        "blocks (default: %(default)s)",
    )
    start.add_argument("--config", help=f"a fresh decoder: one of {', '.join(CONFIGURATIONS)}")
    start.add_argument("--tokenizer", help="with --config: folder of a tokenizer or preset")
    start.add_argument(
        "--num-merges",
        type=int,
        help="with --config, without --tokenizer: merges to learn (default: %(default)s)",
    )
    start.add_argument(
        "--normalization",
        help="how text becomes words, bert or original (default: as the preset or --tokenizer "
        "says, else bert)",
    )
    add("--data-dir", help="folder of prepared TensorFlow Datasets (default: TFDS's own)")
    add("--download", action="store_true", help="fetch and prepare the data set if it is missing")
    add("--epochs", type=int, help="passes over the training data (default: %(default)s)")
    add("--batch-size", type=int, help="examples an update (default: %(default)s)")
    add("--learning-rate", type=float, help="the schedule's peak (default: %(default)s)")
    add("--lm-coefficient", type=float, help="lambda, the weight of L1 (default: %(default)s)")
    add("--dropout", type=float, help="the decoder's dropout (default: the model's own)")
    add("--limit-examples", type=int, help="train on this many examples, drawn at random")
    add("--seed", type=int, help="of weights, order and dropout (default: %(default)s)")
    parser.set_defaults(
        **{field.name: field.default for field in dataclasses.fields(FinetuneOptions)}
    )
    return parser


def main(arguments=None):
    namespace = vars(_parser().parse_args(arguments))
    elsewhere = {name: namespace.pop(name) for name in ("output", "data_dir", "download")}
    try:
        result = finetune(FinetuneOptions(**namespace), **elsewhere)
    except (FileNotFoundError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from the last checkpoint.", file=sys.stderr)
        return 130
    print(f"{result['metric']}: {result['score']:.4f} (epoch {result['best_epoch']})")
    return 0


if __name__ == "__main__":
    sys.exit(main())

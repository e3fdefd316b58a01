"""Evaluates a fine-tuned model on a split of a data set, or on your own file.

    gpt1 evaluate --task sst2 --model runs/sst2/best --data-dir DIR --output DIR
    gpt1 evaluate --file FILE --model runs/mine/best --output DIR

DIR/result.json has the metrics over the whole split, and beside them those of simple baselines that
learn from the same data as the model. report.txt is the report by class, report.json its figures,
confusion.svg the confusion matrix, and reliability.svg says how far the probabilities can be
trusted. errors.csv has the examples that are wrong, the most confident first; predictions.jsonl has
a line for each example. A model of scores has scores.svg, and errors.csv has its largest errors
first. For GLUE's data sets, DIR also has the file that GLUE's server takes, such as SST-2.tsv.
Send the server the file of `--split test`: the labels of that split are not public.

    gpt1 evaluate --file april.csv --model runs/new --beside runs/old --output DIR

also compares two models: both scores, McNemar's test, and changed.csv, the examples that they
answer differently, those that were right and are wrong first.
"""

import dataclasses
import functools
import sys

from gpt1_keras.cli import option, program
from gpt1_keras.presets import PRESET_NAMES
from training.datasets.data_options import DataOptions, ExampleOptions


@dataclasses.dataclass(frozen=True)
class _Options:
    model: str = option("run of gpt1 finetune, or its preset, such as RUN/best", name=PRESET_NAMES)
    output: str = option("folder for result.json and the predictions")
    beside: str | None = option(
        "another run or preset, such as an earlier one, to compare the answers with",
        None,
        metavar="MODEL",
    )


def _check(options: _Options, examples: ExampleOptions, data: DataOptions) -> None:
    examples.check_file(options.model)


@program("training.evaluate", check=_check)
def main(options: _Options, examples: ExampleOptions, data: DataOptions) -> None:
    """Evaluate a fine-tuned model on a split of a data set, or on your own file."""
    from training.evaluation.answer_report import read_report
    from training.evaluation.baselines import describe_beside
    from training.evaluation.preset_evaluation import evaluate
    from training.runs.finetuning import training_examples_of

    find_train = functools.partial(training_examples_of, options.model, data)
    result = evaluate(options.model, options.output, examples, data, find_train, options.beside)
    metrics = result.get("metrics", {})
    if "baselines" in result:
        value = metrics[result["baselines"]["metric"]]
        print(f"{describe_beside(value, result['baselines'])}\n")
    for name, value in metrics.items():
        print(f"{name}: {value:.4f}")
    if "compared" in result:
        from training.evaluation.comparison import describe

        print(f"\n{describe(result['compared'], options.model)}")
    if metrics:
        print(f"\n{read_report(options.output)}")


if __name__ == "__main__":
    sys.exit(main())

"""Evaluates a fine-tuned model on a split of a data set, or on your own file.

    python -m training.evaluate --task sst2 --model runs/sst2/best --data-dir DIR --output DIR
    python -m training.evaluate --file FILE --model runs/mine/best --output DIR

DIR/result.json has the metrics over the whole split, and DIR/predictions.jsonl has a line for each
example. For GLUE's data sets, DIR also has the file that GLUE's server takes, such as SST-2.tsv.
Send the server the file of `--split test`: the labels of that split are not public.
"""

import dataclasses
import sys

from gpt1_keras.cli import option, program
from gpt1_keras.presets import PRESET_NAMES
from training.datasets.data_options import DataOptions, ExampleOptions


@dataclasses.dataclass(frozen=True)
class _Options:
    model: str = option(
        "run of training.finetune, or its preset, such as RUN/best", name=PRESET_NAMES
    )
    output: str = option("folder for result.json and the predictions")


@program("training.evaluate")
def main(options: _Options, examples: ExampleOptions, data: DataOptions) -> None:
    """Evaluate a fine-tuned model on a split of a data set, or on your own file."""
    from training.evaluation.preset_evaluation import evaluate

    result = evaluate(options.model, options.output, examples, data)
    for name, value in result.get("metrics", {}).items():
        print(f"{name}: {value:.4f}")


if __name__ == "__main__":
    sys.exit(main())

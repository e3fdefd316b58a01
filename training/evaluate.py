"""Evaluates a fine-tuned model on a split of a data set, or on your own file.

    python -m training.evaluate --task sst2 --model runs/sst2/best --data-dir DIR --output DIR
    python -m training.evaluate --file FILE --model runs/mine/best --output DIR

DIR/result.json has the metrics over the whole split, and DIR/predictions.jsonl a line for each
example. For GLUE's tasks DIR also has the file, such as SST-2.tsv, that its server takes; send it
that of `--split test`, whose labels are not public.
"""

import dataclasses
import sys

from gpt1_keras.cli import option, program
from training.datasets.data_options import DataOptions, ExampleOptions


@dataclasses.dataclass(frozen=True)
class _Options:
    model: str = option("preset that training.finetune wrote, such as RUN/best")
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

"""Calibrates a fine-tuned model: its probabilities then say how often it is right.

    gpt1 calibrate --task sst2 --model RUN --data-dir DIR
    gpt1 calibrate --file FILE --model RUN

`gpt1 finetune` calibrates on the validation data. This program does it again, on data that you
choose and that the model has not learned from. It writes the temperature into the preset, from
which exports take it. The run gets the figures, calibration.json, and a reliability diagram,
calibration.svg. The predicted classes never change.

With `--sure-precision 0.95`, the preset also gets a threshold, and exports say for each answer
whether it `is_sure`: 95 % of the sure answers are right, as far as the examples show.
"""

import dataclasses
import sys

from gpt1_keras.cli import check_options, option, program
from gpt1_keras.presets import PRESET_NAMES
from training.datasets.data_options import DataOptions, ExampleOptions


@dataclasses.dataclass(frozen=True)
class _Options:
    model: str = option(
        "run of gpt1 finetune, or its preset, such as RUN/best; it is changed",
        name=PRESET_NAMES,
    )
    output: str | None = option(
        "folder for calibration.json and calibration.svg (default: the run's)", None
    )
    sure_precision: float | None = option(
        "share of right answers among those that an export calls sure, such as 0.95 (default: "
        "exports do not say which answers are sure)",
        None,
        metavar="SHARE",
    )

    def __post_init__(self) -> None:
        share = self.sure_precision
        is_valid = share is None or 0.0 < share < 1.0
        check_options(self, ("sure_precision", is_valid, "above 0 and below 1"))


def _check(options: _Options, examples: ExampleOptions, data: DataOptions) -> None:
    examples.check_file(options.model)


@program("training.calibrate", check=_check)
def main(options: _Options, examples: ExampleOptions, data: DataOptions) -> None:
    """Calibrate a fine-tuned model's probabilities, on a split of a data set or your own file."""
    from training.evaluation.calibration import calibrate_preset, describe

    print(describe(calibrate_preset(**vars(options), asked=examples, data=data)))


if __name__ == "__main__":
    sys.exit(main())

"""Calibrates a fine-tuned model: its probabilities become those of being right.

    python -m training.calibrate --task sst2 --model RUN/best --data-dir DIR --output RUN
    python -m training.calibrate --file FILE --model RUN/best --output RUN

`training.finetune` does it on the validation data at its end. This does it again, on data that you
choose, which the model must not have learned from: it finds the temperature, writes it into the
preset, from where it gets into exports, and leaves figures, calibration.json, and a reliability
diagram, calibration.svg, in the output. Labels never change.

With `--sure-precision 0.95`, the preset also gets a threshold, and exports say of each answer
whether it `is_sure`: of such answers, 95 % are right, as far as the examples show.
"""

import dataclasses
import sys

from gpt1_keras.cli import option, program
from training.datasets.data_options import DataOptions, ExampleOptions


@dataclasses.dataclass(frozen=True)
class _Options:
    model: str = option("preset that training.finetune wrote, such as RUN/best; it is changed")
    output: str = option("folder for calibration.json and calibration.svg")
    sure_precision: float | None = option(
        "share of right answers among those that an export calls sure, such as 0.95 (default: "
        "it calls none so)",
        None,
        metavar="SHARE",
    )

    def __post_init__(self) -> None:
        if self.sure_precision is not None and not 0.0 < self.sure_precision < 1.0:
            raise ValueError(
                f"sure_precision must be above 0 and below 1. Received: {self.sure_precision}."
            )


@program("training.calibrate")
def main(options: _Options, examples: ExampleOptions, data: DataOptions) -> None:
    """Calibrate a fine-tuned model's probabilities, on a split of a data set or your own file."""
    from training.evaluation.preset_calibration import calibrate_preset
    from training.evaluation.temperature_scaling import describe

    print(describe(calibrate_preset(**vars(options), asked=examples, data=data)))


if __name__ == "__main__":
    sys.exit(main())

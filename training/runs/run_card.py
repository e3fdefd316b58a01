"""The model card of a fine-tuned preset, from its run's own results."""

import pathlib
from typing import Any

import gpt1_keras
from gpt1_keras.handles import is_handle
from gpt1_keras.presets import PRETRAINED
from gpt1_keras.presets.card import RunFacts, write_card
from training.datasets.paper_datasets import find_dataset
from training.runs.finetune_options import FinetuneOptions
from training.runs.run_folder import Run

_SETTINGS = (
    *("transfer", "epochs", "batch_size", "learning_rate", "layer_decay", "lm_coefficient"),
    *("class_weight", "lora", "dropout", "dtype"),
)


def write_run_card(
    run: Run, options: FinetuneOptions, facts: dict[str, Any], licence: str | None
) -> None:
    """Writes README.md of a run's best preset.

    Args:
        run: with its history.
        options: of the run.
        facts: what `result.json` will hold besides options and history.
        licence: of the preset that the run started from, as
            `gpt1_keras.presets.card.licence_of` returns it.
    """
    if options.task is not None:
        name = options.task
        source = f"{', '.join(find_dataset(name).tfds_names)} of TensorFlow Datasets"
    else:
        # Names alone: a card must not show the folders of a user's machine.
        assert options.train is not None  # see `FinetuneOptions`
        train = pathlib.Path(options.train)
        validation = pathlib.Path(options.validation).name if options.validation else "a share"
        name, source = train.stem, f"{train.name}, validated on {validation}"
    data = {
        "source": source,
        "train_examples": facts["train_examples"],
        "limit_examples": options.limit_examples,
        "validation_examples": facts["validation_examples"],
    }
    settings = {each: getattr(options, each) for each in _SETTINGS}
    settings |= {
        "configuration": options.config,
        "optimizer": "Adam, schedule and clipping of the paper (section 4.1)",
        "seed": options.seed,
        "seconds": facts["seconds"],
        "tensorflow": facts["tensorflow"],
        "gpt1_keras": gpt1_keras.__version__,
    }
    if options.preset is None:  # nothing to transfer
        del settings["transfer"]
    card = RunFacts(
        name=name,
        data=data,
        settings=settings,
        scores=[{k: v for k, v in epoch.items() if k != "seconds"} for epoch in run.history],
        best_epoch=facts["best_epoch"],
        base=_base(options.preset),
        licence=licence,
    )
    write_card(run.folder / "best", card)


def _base(preset: str | None) -> str | None:
    """Returns what others know the preset by: its name, its handle, or its folder's name."""
    if preset is None or is_handle(preset) or preset in PRETRAINED:
        return preset
    return pathlib.Path(preset).absolute().name

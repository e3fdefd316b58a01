"""The options of a fine-tuning that are not given: those of its run so far, or the preset's."""

import dataclasses
import os
import pathlib

from gpt1_keras.files import read_json
from gpt1_keras.presets import configuration, find_preset
from gpt1_keras.recipe import FineTuningRecipe
from training.runs.finetune_options import FinetuneOptions
from training.runs.run_folder import recorded_options


def as_recorded(options: FinetuneOptions, folder: str | os.PathLike[str]) -> FinetuneOptions:
    """Fills in epochs and learning rate from the run that a folder holds, if it holds one.

    So the same command goes on with a run whatever the defaults have become.
    """
    recorded = recorded_options(folder)
    return _filled(options, recorded.get("learning_rate"), recorded.get("epochs"))


def with_recipe(options: FinetuneOptions, train_examples: int) -> FinetuneOptions:
    """Fills in epochs and learning rate from the recipe of the preset or configuration."""
    recipe = _recipe_of(options)
    epochs = recipe.epochs_for(-(-train_examples // options.batch_size))
    return _filled(options, recipe.learning_rate, epochs)


def _filled(
    options: FinetuneOptions, learning_rate: float | None, epochs: int | None
) -> FinetuneOptions:
    return dataclasses.replace(
        options,
        learning_rate=learning_rate if options.learning_rate is None else options.learning_rate,
        epochs=epochs if options.epochs is None else options.epochs,
    )


def _recipe_of(options: FinetuneOptions) -> FineTuningRecipe:
    """Returns the recipe of the backbone that a run starts from."""
    if options.preset is None:
        assert options.config is not None  # see `FinetuneOptions`
        return FineTuningRecipe.of(configuration(options.config).get("fine_tuning"))
    path = pathlib.Path(find_preset(options.preset, weights=False), "config.json")
    try:
        # A checkpoint of `transformers` has no "config" of its backbone, and no recipe.
        return FineTuningRecipe.of(read_json(path).get("config", {}).get("fine_tuning"))
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None

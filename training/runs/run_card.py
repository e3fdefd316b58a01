"""The model cards of the presets that runs write, from the runs' own results."""

import pathlib
from typing import Any

import gpt1_keras
from gpt1_keras.preset_files import is_handle
from gpt1_keras.presets import PRETRAINED
from gpt1_keras.presets.publishing import RunFacts, write_card
from training.corpus.corpus_format import Corpus
from training.datasets.paper_datasets import find_dataset
from training.runs.finetune_options import FinetuneOptions
from training.runs.pretrain_options import PretrainOptions
from training.runs.run_folder import Run

_SETTINGS = (
    *("transfer", "epochs", "batch_size", "learning_rate", "layer_decay", "lm_coefficient"),
    *("class_weight", "lora", "dropout", "dtype"),
)
_PRETRAINING_SETTINGS = (
    *("steps", "batch_size", "sequence_length", "learning_rate", "warmup_steps", "decay_steps"),
    *("clip_norm", "dropout", "repeat_share", "pair_share", "dtype", "accumulation_steps", "seed"),
)


def write_run_card(
    run: Run, options: FinetuneOptions, facts: dict[str, Any], licence: str | None
) -> None:
    """Writes README.md of a run's best preset.

    Args:
        facts: what `result.json` will hold besides options and history.
        licence: of the preset that the run started from, as
            `gpt1_keras.presets.publishing.licence_of` returns it.
    """
    if options.task is not None:
        name = options.task
        source = f"{', '.join(find_dataset(name).tfds_names)} of TensorFlow Datasets"
    else:
        # Names alone: a card must not show the folders of a user's machine.
        assert options.train is not None  # see `FinetuneOptions`
        train = list(map(pathlib.Path, options.train))
        validation = options.validation and pathlib.Path(options.validation).name
        name, names = train[-1].stem, ", ".join(path.name for path in train)
        source = f"{names}, validated on {validation or 'a share of it'}"
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
        best=facts["best_epoch"],
        baselines=facts["baselines"]["scores"],
        base=_base(options.preset),
        licence=licence,
    )
    write_card(run.folder / "best", card)


def write_pretraining_card(
    run: Run, options: PretrainOptions, facts: dict[str, Any], corpus: Corpus, licence: str | None
) -> None:
    """Writes README.md of a run's preset."""
    names = ("validation_loss", "validation_perplexity")  # where there is such a split
    scores = {name.removeprefix("validation_"): facts[name] for name in names if name in facts}
    settings = {each: getattr(options, each) for each in _PRETRAINING_SETTINGS}
    settings |= {
        "configuration": options.config,
        "optimizer": "Adam, schedule and weight decay of the paper (section 4.1)",
        "last_training_loss": f"{run.history[-1]['loss']:.4f}" if run.history else None,
        "seconds": round(sum(entry["seconds"] for entry in run.history), 1),
        "gpt1_keras": gpt1_keras.__version__,
    }
    card = RunFacts(
        name=options.config,
        data={
            "train_tokens": f"{facts['train_tokens']:,}",
            "validation_tokens": f"{facts['validation_tokens']:,}" if scores else None,
            "vocabulary_size": corpus.vocabulary_size,
            "corpus_fingerprint": corpus.fingerprint,
        },
        settings=settings,
        scores=[{"step": options.steps, **scores}] if scores else [],
        best=options.steps,
        base=_base(options.initial_weights),
        licence=licence,
    )
    write_card(run.folder / "preset", card)


def _base(preset: str | None) -> str | None:
    if preset is None or is_handle(preset) or preset in PRETRAINED:
        return preset
    return pathlib.Path(preset).absolute().name

"""The models that tasks take: fresh, from a preset, or fine-tuned already."""

import json
import os
import pathlib

import gpt1_keras
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.presets import build_backbone, find_preset
from gpt1_keras.presets.tokenizers import load_tokenizer
from training.datasets.tasks import CLASSIFICATION, MULTIPLE_CHOICE, SIMILARITY

MODELS = {
    CLASSIFICATION: gpt1_keras.GPT1TextClassifier,
    SIMILARITY: gpt1_keras.GPT1TextSimilarity,
    MULTIPLE_CHOICE: gpt1_keras.GPT1MultipleChoice,
}


def build_model(options, task, train):
    """The model that a fine-tuning starts from.

    Args:
        options: `training.finetune.FinetuneOptions`: a preset, or a configuration to start afresh.
        task: `training.datasets.tasks.Task` or `training.datasets.user_files.UserFileTask`.
        train: `training.datasets.labelled_examples.LabelledExamples`, with the classes, and the texts to learn a tokenizer from
            where there is none.

    Returns:
        `GPT1TextClassifier`, `GPT1TextSimilarity` or `GPT1MultipleChoice`.

    Raises:
        ValueError: more blocks to transfer than the preset has, or another normalization than its
            own.
    """
    if options.preset is not None:
        tokenizer = load_tokenizer(options.preset, options.normalization)
        backbone = _load_backbone(options)
    else:
        tokenizer = _tokenizer(options, train)
        backbone = build_backbone(
            options.config, tokenizer.vocabulary_size(), dropout=options.dropout
        )
    model_cls = MODELS[task.kind]
    answers = {}
    if task.score_range is not None:
        answers["score_range"] = task.score_range
    elif task.kind != MULTIPLE_CHOICE:
        answers["class_names"] = train.class_names
    preprocessor = model_cls.preprocessor_cls(tokenizer, fields=tuple(task.fields))
    return model_cls(backbone, preprocessor=preprocessor, **answers)


def _load_backbone(options):
    """The preset's decoder, with as much of its weights as is transferred (section 5)."""
    changes = {} if options.dropout is None else {"dropout": options.dropout}
    preset = os.fspath(find_preset(options.preset))
    fresh = CausalBackbone.from_preset(preset, load_weights=False, **changes)
    if options.transfer == "none":
        return fresh
    decoder = CausalBackbone.from_preset(preset, **changes)
    if options.transfer != "all":
        kept, blocks = int(options.transfer), getattr(decoder, "blocks", [])
        if not blocks or kept > len(blocks):
            raise ValueError(
                f"{options.preset} has {len(blocks)} blocks. Received: transfer={kept}."
            )
        for block, fresh_block in zip(blocks[kept:], fresh.blocks[kept:]):
            block.set_weights(fresh_block.get_weights())
    return decoder


def _tokenizer(options, train):
    """The tokenizer of a folder, or one learned from the training texts."""
    if options.tokenizer is None:
        texts = [text for tensor in train.tensors().values() for text in _flat(tensor)]
        texts = (text.decode("utf-8", "replace") for text in texts)
        return gpt1_keras.GPT1Tokenizer.learn(
            texts, options.num_merges, normalization=options.normalization or "bert"
        )
    return load_tokenizer(options.tokenizer, options.normalization)


def _flat(tensor):
    """The strings of a tensor, ragged or not."""
    return getattr(tensor, "flat_values", tensor).numpy()


def load_model(path):
    """A model that `training.finetune` wrote.

    Args:
        path: of its preset, such as `RUN/best`.

    Returns:
        `(model, kind)`: one of `MODELS`, and its key.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is another model, or damaged.
    """
    description = pathlib.Path(path, "task.json")
    if not description.is_file():
        raise FileNotFoundError(f"{path} is no fine-tuned model: it has no task.json.")
    found = json.loads(description.read_text())["class_name"]
    kinds = {model_cls.__name__: kind for kind, model_cls in MODELS.items()}
    if found not in kinds:
        raise ValueError(f"{path} is a {found}; expected one of {sorted(kinds)}.")
    return MODELS[kinds[found]].from_preset(str(path)), kinds[found]

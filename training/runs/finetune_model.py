"""The model that a fine-tuning starts from: fresh, or from a pre-trained preset."""

import os
from typing import Any

import gpt1_keras
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.presets import build_backbone, find_preset, load_tokenizer
from gpt1_keras.tasks.task import Task
from training.datasets.labelled_examples import LabelledExamples
from training.datasets.paper_datasets import MULTIPLE_CHOICE
from training.datasets.user_files import Dataset
from training.evaluation.fine_tuned_models import MODELS
from training.runs.finetune_options import FinetuneOptions


def build_model(options: FinetuneOptions, dataset: Dataset, train: LabelledExamples) -> Task:
    """Builds the model that a fine-tuning starts from.

    Args:
        options: name a preset to fine-tune, or a configuration to start afresh.
        train: the training examples; they give the classes, and the texts to learn a tokenizer
            from if there is none.
    """
    if options.preset is not None:
        tokenizer = load_tokenizer(options.preset, options.normalization)
        backbone = _load_backbone(options, options.preset)
    else:
        assert options.config is not None  # `FinetuneOptions` has checked that
        tokenizer = _fresh_tokenizer(options, train)
        backbone = build_backbone(
            options.config,
            tokenizer.vocabulary_size(),
            dtype=options.dtype,
            dropout=options.dropout,
        )
    model_cls = MODELS[dataset.kind]
    labels: dict[str, Any] = {}
    if dataset.score_range is not None:
        labels["score_range"] = dataset.score_range
    elif dataset.kind != MULTIPLE_CHOICE:
        labels["class_names"] = train.class_names
    if not labels.keys() <= set(model_cls.label_arguments):
        raise ValueError(
            f"gpt1 finetune gives a model {', '.join(labels)}. Received: {model_cls.__name__}, "
            f"whose labels are {', '.join(model_cls.label_arguments)}; train it by its `fit`."
        )
    if options.lora is not None:
        backbone.enable_lora(options.lora)
        if not backbone.trainable_variables:
            raise ValueError(f"A {type(backbone).__name__} has no layers for LoRA.")
    preprocessor = model_cls.preprocessor_cls(tokenizer, fields=tuple(dataset.fields))
    return model_cls(backbone, preprocessor=preprocessor, **labels)


def _load_backbone(options: FinetuneOptions, name: str) -> CausalBackbone:
    """Returns the preset's backbone with those of its weights that are transferred (section 5)."""
    given = {"dropout": options.dropout, "dtype": options.dtype}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    preset = os.fspath(find_preset(name))
    fresh = CausalBackbone.from_preset(preset, load_weights=False, **changes)
    if options.transfer == "none":
        return fresh
    backbone = CausalBackbone.from_preset(preset, **changes)
    if options.transfer != "all":
        kept, blocks = int(options.transfer), getattr(backbone, "blocks", [])
        if not blocks or kept > len(blocks):
            raise ValueError(f"{name} has {len(blocks)} blocks. Received: transfer={kept}.")
        for block, fresh_block in zip(blocks[kept:], fresh.blocks[kept:]):
            block.set_weights(fresh_block.get_weights())
    return backbone


def _fresh_tokenizer(options: FinetuneOptions, train: LabelledExamples) -> gpt1_keras.GPT1Tokenizer:
    """Loads a tokenizer, or learns one from the training texts."""
    if options.tokenizer is not None:
        return load_tokenizer(options.tokenizer, options.normalization)
    texts = (
        text.decode("utf-8", "replace")
        for tensor in train.tensors().values()
        for text in getattr(tensor, "flat_values", tensor).numpy()
    )
    return gpt1_keras.GPT1Tokenizer.learn(
        texts, options.num_merges, normalization=options.normalization or "bert"
    )

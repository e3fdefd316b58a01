"""The model of a pre-training: as it starts, and as its preset keeps it."""

import os

import keras
import numpy as np

from gpt1_keras import GPT1CausalLM, GPT1CausalLMPreprocessor
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.models.layers import INITIALIZER_STDDEV
from gpt1_keras.optimization.optimizer import pretraining_optimizer
from gpt1_keras.presets import build_backbone, load_tokenizer
from training.runs.pretrain_options import PretrainOptions
from training.runs.run_folder import changed_options

_FREE_ARGUMENTS = (
    "name",
    "dtype",
    "dropout",
    "fine_tuning",
)  # of a backbone; no weight depends on them


def build_model(
    options: PretrainOptions,
    vocabulary_size: int,
    jit_compile: str | bool = "auto",
    initial: CausalBackbone | None = None,
) -> GPT1CausalLM:
    """Builds and compiles a model: with fresh weights, or with those of another backbone.

    numpy samples the weights, so they are the same on every backend and under every strategy.

    Args:
        initial: the backbone of `options.initial_weights`.
    """
    keras.utils.set_random_seed(options.seed)  # dropout's
    dropout = options.dropout
    if dropout is None and initial is not None:
        dropout = initial.dropout
    backbone = build_backbone(options.config, vocabulary_size, dtype=options.dtype, dropout=dropout)
    random = np.random.default_rng(options.seed)
    for variable in backbone.trainable_variables:
        if len(variable.shape) > 1:
            variable.assign(random.normal(0.0, INITIALIZER_STDDEV, variable.shape))
    if options.initial_positions == "zeros":
        positions = backbone.get_layer("embedding").positions.embeddings
        positions.assign(np.zeros(positions.shape))
    if initial is not None:
        _check_alike(initial, backbone, options.initial_weights)
        backbone.set_weights(initial.get_weights())
    model = GPT1CausalLM(backbone)
    model.compile(
        pretraining_optimizer(
            options.learning_rate,
            options.steps,
            options.warmup,
            options.decay_steps,
            options.clip_norm,
        ),
        jit_compile=jit_compile,
        accumulation_steps=options.accumulation_steps,
    )
    return model


def make_preset(
    backbone: CausalBackbone, tokenizer_folder: str | os.PathLike[str], options: PretrainOptions
) -> GPT1CausalLM:
    """Returns the model to keep: trained weights with the corpus's tokenizer. Needs TensorFlow.

    The preset keeps the run's dropout for fine-tuning: a model that was pre-trained without dropout
    has learned features that dropout destroys (docs/ablations.md).
    """
    tokenizer = load_tokenizer(tokenizer_folder)
    assert options.sequence_length is not None  # set by `PretrainOptions`
    preprocessor = GPT1CausalLMPreprocessor(tokenizer, options.sequence_length)
    return GPT1CausalLM(backbone, preprocessor)


def _check_alike(initial: CausalBackbone, backbone: CausalBackbone, preset: str | None) -> None:
    """Raises ValueError if a preset's backbone has other weights than the one to train."""
    expected = backbone.get_config()
    ours = {name: value for name, value in expected.items() if name not in _FREE_ARGUMENTS}
    changed = changed_options(initial.get_config(), ours)
    if changed:
        raise ValueError(f"{preset} has another configuration: {changed}.")

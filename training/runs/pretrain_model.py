"""The model of a pre-training: as it starts, and as its preset keeps it."""

import os

import keras
import numpy as np

from gpt1_keras import GPT1CausalLM, GPT1CausalLMPreprocessor
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.models.layers import INITIALIZER_STDDEV
from gpt1_keras.optimization.optimizer import pretraining_optimizer
from gpt1_keras.presets import build_backbone, load_tokenizer
from training.corpus.corpus_format import Corpus
from training.evaluation.language_models import load_for_corpus
from training.runs.pretrain_options import PretrainOptions
from training.runs.run_folder import changed_options

_FREE_ARGUMENTS = ("name", "dtype", "dropout")  # of a backbone, on which no weight depends


def build_model(
    options: PretrainOptions, vocabulary_size: int, jit_compile: str | bool = "auto"
) -> GPT1CausalLM:
    """Builds and compiles a model with fresh weights.

    numpy samples the weights, so they are the same on every backend and under every strategy.
    """
    keras.utils.set_random_seed(options.seed)  # dropout's
    backbone = build_backbone(
        options.config, vocabulary_size, dtype=options.dtype, dropout=options.dropout
    )
    random = np.random.default_rng(options.seed)
    for variable in backbone.trainable_variables:
        if len(variable.shape) > 1:
            variable.assign(random.normal(0.0, INITIALIZER_STDDEV, variable.shape))
    if options.initial_positions == "zeros":
        positions = backbone.get_layer("embedding").positions.embeddings
        positions.assign(np.zeros(positions.shape))
    model = GPT1CausalLM(backbone)
    model.compile(
        pretraining_optimizer(
            options.learning_rate,
            options.steps,
            options.warmup_steps,
            options.decay_steps,
            options.clip_norm,
        ),
        jit_compile=jit_compile,
        accumulation_steps=options.accumulation_steps,
    )
    return model


def load_initial_weights(
    backbone: CausalBackbone, preset: str | os.PathLike[str], corpus: Corpus
) -> None:
    """Gives a backbone the weights of a preset. Needs TensorFlow.

    Raises:
        FileNotFoundError: there is no preset.
        ValueError: it has another configuration, or another tokenizer than the corpus.
    """
    source = load_for_corpus(preset, corpus).backbone
    config, expected = source.get_config(), backbone.get_config()
    ours = {name: value for name, value in expected.items() if name not in _FREE_ARGUMENTS}
    changed = changed_options(config, ours)
    if changed:
        raise ValueError(f"{preset} has another configuration: {changed}.")
    backbone.set_weights(source.get_weights())


def make_preset(
    backbone: CausalBackbone, tokenizer_folder: str | os.PathLike[str], options: PretrainOptions
) -> GPT1CausalLM:
    """Returns the model to keep: trained weights with the corpus's tokenizer. Needs TensorFlow.

    Fine-tuning finds the dropout that the run had: a model that was trained without has learned
    features that dropout destroys (docs/results.md).

    Args:
        backbone: trained.
        tokenizer_folder: of the corpus.
        options: of the run.
    """
    tokenizer = load_tokenizer(tokenizer_folder)
    assert options.sequence_length is not None  # set by `PretrainOptions`
    preprocessor = GPT1CausalLMPreprocessor(tokenizer, options.sequence_length)
    return GPT1CausalLM(backbone, preprocessor)

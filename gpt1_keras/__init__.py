"""GPT-1 for TensorFlow and Keras: pre-train, fine-tune, and serve on raw text."""

from gpt1_keras import convert, presets
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.models.lstm_backbone import LSTMBackbone
from gpt1_keras.optimization import optimizer
from gpt1_keras.tasks.causal_lm import GPT1CausalLM
from gpt1_keras.tasks.causal_lm_preprocessor import GPT1CausalLMPreprocessor
from gpt1_keras.tasks.multiple_choice import GPT1MultipleChoice
from gpt1_keras.tasks.multiple_choice_preprocessor import GPT1MultipleChoicePreprocessor
from gpt1_keras.tasks.text_classifier import GPT1TextClassifier
from gpt1_keras.tasks.text_classifier_preprocessor import GPT1TextClassifierPreprocessor
from gpt1_keras.tasks.text_similarity import GPT1TextSimilarity
from gpt1_keras.tasks.text_similarity_preprocessor import GPT1TextSimilarityPreprocessor
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.version import __version__

__all__ = [
    "GPT1Backbone",
    "GPT1CausalLM",
    "GPT1CausalLMPreprocessor",
    "GPT1MultipleChoice",
    "GPT1MultipleChoicePreprocessor",
    "GPT1TextClassifier",
    "GPT1TextClassifierPreprocessor",
    "GPT1TextSimilarity",
    "GPT1TextSimilarityPreprocessor",
    "GPT1Tokenizer",
    "LSTMBackbone",
    "__version__",
    "convert",
    "optimizer",
    "presets",
]

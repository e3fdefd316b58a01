from . import convert as convert
from . import presets as presets
from .models.gpt1_backbone import GPT1Backbone as GPT1Backbone
from .models.lstm_backbone import LSTMBackbone as LSTMBackbone
from .optimization import optimizer as optimizer
from .tasks.causal_lm import GPT1CausalLM as GPT1CausalLM
from .tasks.causal_lm import GPT1CausalLMPreprocessor as GPT1CausalLMPreprocessor
from .tasks.multiple_choice import GPT1MultipleChoice as GPT1MultipleChoice
from .tasks.multiple_choice import (
    GPT1MultipleChoicePreprocessor as GPT1MultipleChoicePreprocessor,
)
from .tasks.text_classifier import GPT1TextClassifier as GPT1TextClassifier
from .tasks.text_classifier import (
    GPT1TextClassifierPreprocessor as GPT1TextClassifierPreprocessor,
)
from .tasks.text_similarity import GPT1TextSimilarity as GPT1TextSimilarity
from .tasks.text_similarity import (
    GPT1TextSimilarityPreprocessor as GPT1TextSimilarityPreprocessor,
)
from .tokenization.tokenizer import GPT1Tokenizer as GPT1Tokenizer
from .version import __version__ as __version__

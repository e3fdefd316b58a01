"""Named configurations of the backbones, and the names of the models that ship.

Programs list them in `--help`, so the classes, which need Keras, are imported only where they are
used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpt1_keras.models.gpt1_backbone import GPT1Backbone
    from gpt1_keras.models.lstm_backbone import LSTMBackbone

PRETRAINED = {
    "gpt1_tiny_books": "GPT-1 of 5 million parameters, pre-trained on books in the public domain.",
    "gpt1_small_books": "GPT-1 of 23 million parameters, pre-trained on the same books for longer.",
}

# The help of programs' options that name a preset, and their names: two, of which either is taken.
PRESET_HELP = (
    f"{', '.join(PRETRAINED)}, the folder of a preset or of a run, or a handle such as "
    "hf://openai-community/openai-gpt, which is downloaded"
)
PRESET_NAMES = ("--model", "--preset")

# Of models this small; docs/results.md has scores of gpt1_tiny at two rates.
_SMALL = {"fine_tuning": {"learning_rate": 2e-4}}

# Arguments of the class that `backbone_class` returns.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    # The paper's (section 4.1): 117 million parameters.
    "gpt1_paper": {},
    # About 23 million with an 8,000-token vocabulary.
    "gpt1_small": {
        **_SMALL,
        "num_layers": 6,
        "num_heads": 8,
        "hidden_dim": 512,
        "intermediate_dim": 2048,
    },
    # About 10 million with an 8,000-token vocabulary.
    "gpt1_mini": {
        **_SMALL,
        "num_layers": 6,
        "num_heads": 5,
        "hidden_dim": 320,
        "intermediate_dim": 1280,
        "max_sequence_length": 256,
    },
    # About 5 million with an 8,000-token vocabulary: hours on a CPU.
    "gpt1_tiny": {
        **_SMALL,
        "num_layers": 4,
        "num_heads": 4,
        "hidden_dim": 256,
        "intermediate_dim": 1024,
        "max_sequence_length": 256,
    },
    # About 1.4 million with an 8,000-token vocabulary: minutes on a CPU, to try things out.
    "gpt1_micro": {
        **_SMALL,
        "num_layers": 2,
        "num_heads": 4,
        "hidden_dim": 128,
        "intermediate_dim": 512,
        "max_sequence_length": 128,
    },
    # The paper's LSTM (section 5), and two with about as many parameters as gpt1_tiny and
    # gpt1_micro.
    "lstm_paper": {"units": 2048},
    "lstm_tiny": {**_SMALL, "units": 768, "hidden_dim": 256, "max_sequence_length": 256},
    "lstm_micro": {**_SMALL, "units": 256, "hidden_dim": 128, "max_sequence_length": 128},
}


def configuration(name: str) -> dict[str, Any]:
    """Returns a configuration. Raises ValueError, naming all of them, if there is none."""
    if name not in CONFIGURATIONS:
        raise ValueError(f"Unknown configuration {name!r}; expected one of {list(CONFIGURATIONS)}.")
    return CONFIGURATIONS[name]


def backbone_class(name: str) -> type[GPT1Backbone] | type[LSTMBackbone]:
    """Returns the class of a configuration. Raises ValueError as `configuration`."""
    from gpt1_keras.models.gpt1_backbone import GPT1Backbone
    from gpt1_keras.models.lstm_backbone import LSTMBackbone

    return LSTMBackbone if "units" in configuration(name) else GPT1Backbone


def build_backbone(name: str, vocabulary_size: int, **changes: Any) -> GPT1Backbone | LSTMBackbone:
    """Builds a backbone with random weights, by a configuration's name.

    `changes` are arguments that replace the configuration's; None changes nothing. Raises
    ValueError if there is no such configuration.
    """
    arguments = dict(configuration(name))
    arguments |= {key: value for key, value in changes.items() if value is not None}
    return backbone_class(name)(vocabulary_size, **arguments)

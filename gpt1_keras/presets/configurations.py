"""Named configurations of the decoder."""

from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.models.lstm_backbone import LSTMBackbone

# Arguments of `GPT1Backbone`, or of `LSTMBackbone` where the name says so.
CONFIGURATIONS = {
    # The paper's (section 4.1): 117 million parameters.
    "gpt1_paper": {},
    # About 25 million with an 8,000-token vocabulary.
    "gpt1_small": {
        "num_layers": 6,
        "num_heads": 8,
        "hidden_dim": 512,
        "intermediate_dim": 2048,
    },
    # About 5 million with an 8,000-token vocabulary: hours on a CPU.
    "gpt1_tiny": {
        "num_layers": 4,
        "num_heads": 4,
        "hidden_dim": 256,
        "intermediate_dim": 1024,
        "max_sequence_length": 256,
    },
    # Under a million: minutes on a CPU, for trying things out.
    "gpt1_micro": {
        "num_layers": 2,
        "num_heads": 4,
        "hidden_dim": 128,
        "intermediate_dim": 512,
        "max_sequence_length": 128,
    },
    # The paper's comparison (section 5), and ones with about the parameters of the decoders above.
    "lstm_paper": {"units": 2048},
    "lstm_tiny": {"units": 768, "hidden_dim": 256, "max_sequence_length": 256},
    "lstm_micro": {"units": 256, "hidden_dim": 128, "max_sequence_length": 128},
}


def configuration(name):
    """The configuration of that name. Raises ValueError, naming those there are."""
    if name not in CONFIGURATIONS:
        raise ValueError(f"Unknown configuration {name!r}; expected one of {list(CONFIGURATIONS)}.")
    return CONFIGURATIONS[name]


def build_backbone(name, vocabulary_size, **changes):
    """A fresh decoder.

    Args:
        name: of a configuration.
        vocabulary_size: int.
        **changes: arguments that shall be other than the configuration's; `None` changes nothing.

    Returns:
        `GPT1Backbone` or `LSTMBackbone`.

    Raises:
        ValueError: there is no such configuration.
    """
    arguments = dict(configuration(name))
    arguments |= {key: value for key, value in changes.items() if value is not None}
    decoder_cls = LSTMBackbone if name.startswith("lstm_") else GPT1Backbone
    return decoder_cls(vocabulary_size, **arguments)

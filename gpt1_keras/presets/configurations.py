"""Named configurations of the decoder, as arguments of `GPT1Backbone`."""

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
}


def configuration(name):
    """The configuration of that name. Raises ValueError, naming those there are."""
    if name not in CONFIGURATIONS:
        raise ValueError(f"Unknown configuration {name!r}; expected one of {list(CONFIGURATIONS)}.")
    return CONFIGURATIONS[name]

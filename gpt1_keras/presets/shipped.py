"""The names of the pre-trained models that ship with the package.

Each is a folder beside this file, as `save_to_preset` writes it, with a model card, README.md.
"""

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

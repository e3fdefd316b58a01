"""Reads spaCy 2.0's rules for English from its published wheel."""

import dataclasses
import importlib
import os
import sys
import types

# What spaCy's rules import from its compiled part: names of attributes.
_SYMBOLS = ("ORTH", "POS", "LEMMA", "NORM", "TAG", "SPACE", "PUNCT", "PRON_LEMMA")


@dataclasses.dataclass(frozen=True)
class SpacyRules:
    """The rules, as spaCy's modules define them.

    Attributes:
        prefixes, suffixes, infixes: patterns of the module `regex`, version 1.
        url: pattern of strings that stay whole.
        exceptions: from a string to the list of its tokens.
        letters, lower, upper: letters, lower-case and capital letters, for use inside `[]`.
    """

    prefixes: list[str]
    suffixes: list[str]
    infixes: list[str]
    url: str
    exceptions: dict[str, list[str]]
    letters: str
    lower: str
    upper: str


def read_spacy_rules(wheel: str | os.PathLike[str]) -> SpacyRules:
    """Reads the rules from the path of spaCy 2.0.18's wheel.

    spaCy 2.0 does not run on today's Python. Its rules are plain modules, which need only the
    packages around them, and the module `regex`.
    """
    packages = {name: types.ModuleType(name) for name in ("spacy", "spacy.lang", "spacy.lang.en")}
    for name, package in packages.items():
        package.__path__ = ["/".join([str(wheel), *name.split(".")])]
    symbols = types.ModuleType("spacy.symbols")
    vars(symbols).update({name: name for name in _SYMBOLS})
    before = dict(sys.modules)
    sys.modules.update(packages, **{"spacy.symbols": symbols})
    try:
        classes, punctuation, base, english = (
            importlib.import_module(f"spacy.lang.{name}")
            for name in (
                "char_classes",
                "punctuation",
                "tokenizer_exceptions",
                "en.tokenizer_exceptions",
            )
        )
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "spacy"]:
            del sys.modules[name]
        sys.modules.update({name: before[name] for name in before if name.startswith("spacy")})
    exceptions = {**base.BASE_EXCEPTIONS, **english.TOKENIZER_EXCEPTIONS}
    return SpacyRules(
        prefixes=punctuation.TOKENIZER_PREFIXES,
        suffixes=punctuation.TOKENIZER_SUFFIXES,
        infixes=punctuation.TOKENIZER_INFIXES,
        url=base.URL_PATTERN,
        exceptions={
            chunk: [token["ORTH"] for token in tokens] for chunk, tokens in exceptions.items()
        },
        letters=classes.ALPHA,
        lower=classes.ALPHA_LOWER,
        upper=classes.ALPHA_UPPER,
    )

"""The original normalisation in Python: ftfy, text_standardize, spaCy 2.0's rules, lower case.

text_utils.py of openai/finetune-transformer-lm runs the same, and tests compare the graph with this
pipeline. spaCy 2.0 does not run on today's Python, so this file has its tokenizer again, after
tokenizer.pyx of version 2.0.18; spacy_rules.json has spaCy's own rules. Needs ftfy.
"""

import json
import pathlib
import re

import ftfy
import regex
from tokenizers import Tokenizer, models

from benchmarks.harness.measured_models import tokenizer_files
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN

RULES_FILE = pathlib.Path(__file__).with_name("spacy_rules.json")
_REPLACED = {"—": "-", "–": "-", "―": "-", "…": "...", "´": "'"}
# In the original, `\\+` stands in a string that is not raw, so it matches no backslashes.
_PUNCTUATION = re.compile(r"(-+|~+|!+|\"+|;+|\?+|\++|,+|\)+|\(+|\+|\/+|\*+|\[+|\]+|}+|{+|\|+|_+)")


class SpacyTokenizer:
    """spaCy 2.0.18's English tokenizer."""

    def __init__(self):
        rules = json.loads(RULES_FILE.read_text(encoding="utf-8"))
        self._find_prefix = _compile(f"^{piece}" for piece in rules["prefixes"]).search
        self._find_suffix = _compile(f"{piece}$" for piece in rules["suffixes"]).search
        self._find_infixes = _compile(rules["infixes"]).finditer
        self._is_url = _compile([rules["url"]]).match
        curly = {
            chunk.replace("'", "’"): [piece.replace("'", "’") for piece in pieces]
            for chunk, pieces in rules["exceptions"].items()
        }
        self._exceptions = {**curly, **rules["exceptions"]}

    def __call__(self, text):
        """Returns a list of str: tokens, also white space other than single spaces."""
        tokens = []
        for space, chunk in re.findall(r"(\s+)|(\S+)", text):
            # A space belongs to the token before it.
            tokens += self.split(chunk) or [space.removeprefix(" " if tokens else "")]
        return [token for token in tokens if token]

    def split(self, chunk):
        """Returns the tokens of a string without white space."""
        before, after = [], []
        size = 0
        while chunk and len(chunk) != size and chunk not in self._exceptions:
            if self._is_url(chunk):
                break
            size = len(chunk)
            prefix = _length(self._find_prefix(chunk))
            if prefix and chunk[prefix:] in self._exceptions:
                before.append(chunk[:prefix])
                chunk = chunk[prefix:]
                break
            suffix = _length(self._find_suffix(chunk))
            if suffix and chunk[:-suffix] in self._exceptions:
                after.append(chunk[-suffix:])
                chunk = chunk[:-suffix]
                break
            if prefix and prefix + suffix > size:
                suffix = 0
            if prefix:
                before.append(chunk[:prefix])
            if suffix:
                after.append(chunk[-suffix:])
            chunk = chunk[prefix : size - suffix]
        return before + self._split_core(chunk) + after[::-1]

    def _split_core(self, chunk):
        if not chunk or chunk in self._exceptions or self._is_url(chunk):
            return self._exceptions.get(chunk, [chunk] if chunk else [])
        pieces, start = [], 0
        for infix in self._find_infixes(chunk):
            if infix.start() > 0:
                pieces += [chunk[start : infix.start()], infix.group()]
                start = infix.end()
        return [piece for piece in [*pieces, chunk[start:]] if piece]


class PythonPipeline:
    """Texts to words."""

    def __init__(self):
        self._tokenizer = SpacyTokenizer()
        self._words = {}  # spaCy remembers what it has split, too

    def __call__(self, text):
        """Returns the words of a text, a list of str; a line end is the word `"\\n"`."""
        words = []
        for chunk in text_standardize(ftfy.fix_text(text)).split(" "):
            if chunk not in self._words:
                # spaCy makes the token "\n " of a line end, which in the end becomes the word "\n".
                tokens = [chunk] if chunk == "\n" else self._tokenizer.split(chunk)
                self._words[chunk] = [token.lower() for token in tokens]
            words += self._words[chunk]
        return words


class PipelineTokenizer:
    """The pipeline followed by Hugging Face's byte-pair encoding: from a text to ids.

    Args:
        folder: of the original vocabulary and merges.
    """

    def __init__(self, folder):
        self._words = PythonPipeline()
        files = tokenizer_files(folder)
        self._encoder = Tokenizer(
            models.BPE.from_file(*files, unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD)
        )
        self._ids = {}

    def __call__(self, text):
        """Returns the ids of a text, a list of int."""
        ids = []
        for word in self._words(text):
            if word not in self._ids:
                self._ids[word] = self._encoder.encode([word], is_pretokenized=True).ids
            ids += self._ids[word]
        return ids


def text_standardize(text):
    """Cleans a text up as GPT-1's text_utils.py does."""
    for character, replacement in _REPLACED.items():
        text = text.replace(character, replacement)
    text = _PUNCTUATION.sub(r" \1 ", text)
    text = re.sub(r"\s*\n\s*", " \n ", text)
    return re.sub(r"[^\S\n]+", " ", text).strip()


def _compile(pieces):
    return regex.compile("|".join(pieces), regex.VERSION1)


def _length(match):
    return len(match.group()) if match else 0

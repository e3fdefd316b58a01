"""Rebuilds original_tables.json, the `original` normalization's rules, from two wheels.

    pip download --no-deps --dest WHEELS ftfy==6.3.1
    pip download --no-deps --dest WHEELS --only-binary :all: --python-version 3.6 \\
        --implementation cp --abi cp36m --platform manylinux1_x86_64 spacy==2.0.18
    python -m tests.helpers.make_original_tables WHEELS

It also writes spacy_rules.json, spaCy's own rules for the benchmarks' Python pipeline.

Neither package is installed, nor needed afterwards. Building needs `regex` and `wcwidth`, which
they import. All that depends on Unicode is enumerated here, code point by code point, so that the
graph behaves the same under every version of TensorFlow.
"""

import dataclasses
import hashlib
import html
import importlib
import json
import os
import pathlib
import re
import sys
import types
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import regex

from gpt1_keras.cli import option, program
from gpt1_keras.files import atomic_path
from gpt1_keras.tokenization.normalization.original import TABLES_FILE

SOURCES = {
    "spacy-2.0.18-cp36-cp36m-manylinux1_x86_64.whl": (
        "fbaba13090b05576c7fd507afceb571a6af92911973e6bd3eee1f99b8cbbccc1"
    ),
    "ftfy-6.3.1-py3-none-any.whl": (
        "7c70eb532015cd2f9adb53f101fb6c7945988d023a085d127d1573dc49dd0083"
    ),
}
_CHARACTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
_BLOCK = 256  # code points
_HANGUL = {chr(code) for code in range(0xAC00, 0xD7A4)}  # composed by arithmetic instead
# What spaCy's rules import from its compiled part: names of attributes.
_SYMBOLS = ("ORTH", "POS", "LEMMA", "NORM", "TAG", "SPACE", "PUNCT", "PRON_LEMMA")
# What text_standardize separates from its neighbours, run by run. spaCy's rules then split a run of
# a character in the class into single characters; the other runs stay whole.
PUNCTUATION = r'[!"()*+,;?\[\]_{}]|-+|/+|~+|\|+'

_ALL = "".join(_CHARACTERS)
_LOOK_BEHIND = "(?<="


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


def find_wheels(folder: str | os.PathLike[str]) -> list[pathlib.Path]:
    """Finds the two published wheels in a folder, and returns the paths of spaCy's and ftfy's.

    Raises:
        FileNotFoundError: a wheel is missing.
        ValueError: a wheel is not the published one.
    """
    paths = []
    for name, expected in SOURCES.items():
        path = pathlib.Path(folder) / name
        if not path.is_file():
            raise FileNotFoundError(f"The wheel {str(path)!r} does not exist.")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != expected:
            raise ValueError(
                f"{path} is not the published wheel: its SHA-256 is {found}; expected {expected}."
            )
        paths.append(path)
    return paths


def make_tables(rules: SpacyRules) -> dict[str, Any]:
    """Enumerates what spaCy's rules do, and the `ftfy` that can be imported.

    Returns:
        The tables, as in original_tables.json; see `original.read_tables`.
    """
    from ftfy import badness, chardata, fix_text

    def clean(text: str) -> str:
        return fix_text(text, fix_encoding=False, explain=False)

    def unescape(text: str) -> str:
        return html.unescape("".join(f"&#{ord(character)};" for character in text))

    return {
        "sources": SOURCES,
        "unicode": unicodedata.unidata_version,
        "patterns": {
            **splitting_patterns(rules),
            "bad": badness_pattern(badness.BADNESS_RE.pattern),
            **mojibake_patterns(chardata.UTF8_CLUES),
            "escape": r"\x1b\[[" + char_class(r"\d", re) + ";]*[a-zA-Z]",
            "space": "[" + char_class(r"[^\S\n]", re) + "]",
        },
        "exceptions": {
            chunk: tokens
            for chunk, tokens in sorted(rules.exceptions.items())
            if standardize(clean(chunk)) == chunk
        },
        "characters": _changed(clean, _CHARACTERS[0x80:]),
        "compositions": _compositions(),
        "entities": chardata.HTML_ENTITIES,
        "references": _changed(unescape, _CHARACTERS),
        "encodings": {name: bytes(range(256)).decode(name) for name in chardata.CHARMAP_ENCODINGS},
    }


def standardize(text: str) -> str:
    """GPT-1's own clean-up after ftfy's: dashes, punctuation, white space.

    It is `text_standardize` of openai/finetune-transformer-lm.
    """
    for character, replacement in (("—", "-"), ("–", "-"), ("―", "-"), ("…", "..."), ("´", "'")):
        text = text.replace(character, replacement)
    # The original was meant to match runs of backslashes, too; as its string is not raw, it matches
    # runs of a plus twice.
    runs = "|".join(f"{re.escape(character)}+" for character in '-~!";?+,)(/*[]}{|_')
    text = re.sub(f"({runs})", r" \1 ", text)
    text = re.sub(r"\s*\n\s*", " \n ", text)
    return re.sub(r"[^\S\n]+", " ", text).strip()


def _changed(function: Callable[[str], str], characters: Sequence[str]) -> dict[str, str]:
    """Returns the code points that a function of texts changes, with what it makes of them."""
    made: dict[str, str] = {}
    for start in range(0, len(characters), _BLOCK):
        block = characters[start : start + _BLOCK]
        if function("".join(block)) != "".join(block):  # few blocks change
            made |= {character: function(character) for character in block}
    return {character: text for character, text in made.items() if text != character}


def _compositions() -> dict[str, str]:
    """Returns the pairs of code points that compose to one, with this one.

    They are Unicode's pairs, and those that it composes only after reordering marks.
    """
    pairs = {}
    composed = [c for c in _CHARACTERS if unicodedata.normalize("NFC", c) == c]
    rights = {
        unicodedata.normalize("NFD", c)[-1]
        for c in composed
        if c not in _HANGUL and unicodedata.normalize("NFD", c) != c
    }
    lefts = {unicodedata.normalize("NFC", unicodedata.normalize("NFD", c)[:-1]) for c in composed}
    lefts |= {c for c in composed if unicodedata.normalize("NFD", c) != c}
    for left in sorted(x for x in lefts if len(x) == 1 and x not in _HANGUL):
        for right in sorted(rights):
            joined = unicodedata.normalize("NFC", left + right)
            if len(joined) == 1:
                pairs[left + right] = joined
    return pairs


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


# RE2 has no look-behind, and its classes cover only ASCII, or another version of Unicode. So the
# patterns of the modules `re` and `regex` are translated: classes are enumerated over all code
# points, and a look-behind becomes part of the match.


def char_class(pattern: str, module: types.ModuleType = regex) -> str:
    """Returns the content of an RE2 class with the code points that a pattern matches.

    Args:
        pattern: matches one code point.
        module: `regex` or `re`, whose classes differ.
    """
    codes = sorted(map(ord, set(module.findall(pattern, _ALL))))
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(
        f"\\x{{{low:x}}}" if low == high else f"\\x{{{low:x}}}-\\x{{{high:x}}}"
        for low, high in ranges
    )


def splitting_patterns(rules: SpacyRules) -> dict[str, str]:
    """spaCy's rules for prefixes, suffixes, infixes and URLs, as RE2 patterns by name.

    It leaves out rules that apply only to what text_standardize has already separated.
    """
    icons = "[" + char_class(r"[\p{So}]") + "]"
    letter, lower, upper = (
        char_class(f"(?V1)[{x}]") for x in (rules.letters, rules.lower, rules.upper)
    )

    def enumerate_icons(patterns: Iterable[str]) -> str:
        return "|".join(pattern.replace(r"[\p{So}]", icons) for pattern in patterns)

    with_look_behind = [suffix for suffix in rules.suffixes if suffix.startswith(_LOOK_BEHIND)]
    plus, degree, currency, unit, dot, initials = (
        suffix.removeprefix(_LOOK_BEHIND) for suffix in with_look_behind
    )
    after_digit = [suffix.removeprefix("[0-9])") for suffix in (plus, currency, unit)]
    before_dot = char_class("(?V1)" + dot.removesuffix(r")\."))
    url = _url(char_class(r"\w"))
    # Strings that no rule splits: most words, what text_standardize separates, and \x01, which
    # stands for a line end.
    plain = rf"[A-Za-z]*|[0-9]+|[.]|\x01|{PUNCTUATION}"
    return {
        "punctuation": PUNCTUATION,
        "whole": f"{plain}|{url}",
        "prefix": f"^(?:{enumerate_icons(rules.prefixes)})",
        "suffix": f"(?:{enumerate_icons(x for x in rules.suffixes if x not in with_look_behind)})$",
        "suffix_after_digit": f"[0-9](?:{'|'.join(after_digit)})$",
        "suffix_dot": rf"(?s).*(?:[{before_dot}]|°[FfCcKk]|[{upper}][{upper}])\.",
        "infix": rf"\.\.+|…|{icons}",
        "infix_between": rf"([0-9])(\^)([0-9])|([{lower}])(\.)([{upper}])"
        rf"|([{letter}])([:<>=])([{letter}])",
    }


def _url(word: str) -> str:
    """spaCy's pattern for URLs without white space and slashes, which start and end in a class.

    Without slashes there is no scheme, and all that follows the host is its tail.
    """
    host = r"[a-z0-9]+(?:\.[a-z0-9]+)*\.[a-z]{2}"
    return f"(?:[{word}].*@)?(?:{_public_address()}|{host})(?:.*[{word}])?"


def _public_address() -> str:
    """IP addresses except private ones, which spaCy excludes by looking ahead.

    Private addresses are 10.*, 127.*, 169.254.*, 192.168.* and 172.16.* to 172.31.*. (spaCy also
    excludes those in the digits of other scripts.)
    """

    def other(digits: str) -> str:
        return "[" + "".join(sorted(set("0123456789") - set(digits))) + "]"

    number = "1?[0-9][0-9]?|2[0-4][0-9]|25[0-5]"
    last = "[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-4]"
    first = (
        f"[2-9][0-9]?|1{other('0')}?|1{other('2679')}[0-9]|12{other('7')}|16{other('9')}"
        f"|17{other('2')}|19{other('2')}|2[01][0-9]|22[0-3]"
    )
    not_254 = "1?[0-9][0-9]?|2[0-4][0-9]|25[0-35]"
    not_168 = f"[0-9][0-9]?|1{other('6')}[0-9]|16{other('8')}|2[0-4][0-9]|25[0-5]"
    not_16_to_31 = (
        f"[0-9]|{other('123')}[0-9]|1{other('6789')}|3{other('01')}|1[0-9][0-9]|2[0-4][0-9]|25[0-5]"
    )
    first_two = (
        rf"(?:{first})\.(?:{number})|169\.(?:{not_254})|192\.(?:{not_168})|172\.(?:{not_16_to_31})"
    )
    return rf"(?:{first_two})\.(?:{number})\.(?:{last})"


def badness_pattern(pattern: str) -> str:
    """ftfy's pattern for mojibake: from verbose, of `re`, to one without spaces and comments."""
    kept, in_class, lines = [], False, pattern.split("\n")
    for character in "\n".join(line for line in lines if not line.lstrip().startswith("#")):
        if character == "[" or character == "]":
            in_class = character == "["
        if in_class or not character.isspace():
            kept.append(character)
    bare = "".join(kept)
    for name in (r"\s", r"\w"):
        bare = bare.replace(name, f"[{char_class(name, re)}]")
    return f"(?s).*(?:{bare}).*"


def mojibake_patterns(clues: Mapping[str, str]) -> dict[str, str]:
    """ftfy's pattern for what looks like UTF-8 read in another encoding.

    Args:
        clues: ftfy's character classes by name.

    Returns:
        A dict of `mojibake`, which matches a run of it, and `before_mojibake`, which matches what
        must stand before the run.
    """
    after = f"[{clues['utf8_continuation']}]"
    return {
        "mojibake": f"(?:[{clues['utf8_first_of_2']}]{after}"
        f"|[{clues['utf8_first_of_3']}]{after}{{2}}|[{clues['utf8_first_of_4']}]{after}{{3}})+",
        "before_mojibake": f"^|[^{clues['utf8_continuation_strict']}]",
    }


@dataclasses.dataclass(frozen=True)
class Options:
    wheels: str = option("folder with both wheels", name="wheels")


@program("tests.helpers.make_original_tables")
def main(options: Options) -> None:
    """Rebuild original_tables.json and spacy_rules.json from the published wheels."""
    spacy_wheel, ftfy_wheel = find_wheels(options.wheels)
    rules = read_spacy_rules(spacy_wheel)
    sys.path.insert(0, str(ftfy_wheel))
    write(TABLES_FILE, make_tables(rules), separators=(",", ":"))
    # Not at the top: it imports the ftfy that is installed.
    from benchmarks.peers.python_pipeline import RULES_FILE

    write(RULES_FILE, dataclasses.asdict(rules), indent=0)


def write(path: pathlib.Path, content: dict[str, Any], **style: Any) -> None:
    """Writes JSON, and prints its size."""
    with atomic_path(path) as temporary:
        text = json.dumps(content, ensure_ascii=False, **style)
        pathlib.Path(temporary).write_text(text + "\n", encoding="utf-8")
    print(f"{path}: {os.path.getsize(path):,} bytes")


if __name__ == "__main__":
    sys.exit(main())

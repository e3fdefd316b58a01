"""Translates patterns of Python's modules `re` and `regex` to RE2.

RE2 has no look-behind, and its classes cover only ASCII, or another version of Unicode. So classes
are enumerated over all code points, and a look-behind becomes part of the match.
"""

import re
from collections.abc import Iterable, Mapping
from types import ModuleType

import regex

from tests.helpers.spacy_rules import SpacyRules

# What text_standardize separates from its neighbours, run by run. spaCy's rules then split a run of
# a character in the class into single characters; the other runs stay whole.
PUNCTUATION = r'[!"()*+,;?\[\]_{}]|-+|/+|~+|\|+'

_ALL = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
_LOOK_BEHIND = "(?<="


def char_class(pattern: str, module: ModuleType = regex) -> str:
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

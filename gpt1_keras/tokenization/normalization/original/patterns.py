"""Patterns of Python's modules `re` and `regex` as RE2 has them. Needed to build tables only.

RE2 knows no look-behind, and its classes cover ASCII or another version of Unicode. So classes are
enumerated over all code points, and what a look-behind asks for is matched along.
"""

import re

import regex

from gpt1_keras.tokenization.normalization.original.spacy_rules import SpacyRules

# What text_standardize parts from its neighbours, run by run. A run of one of the characters of
# the class falls to single characters under spaCy's rules; the other runs stay whole.
PUNCTUATION = r'[!"()*+,;?\[\]_{}]|-+|/+|~+|\|+'

_ALL = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
_LOOK_BEHIND = "(?<="


def char_class(pattern, module=regex):
    """The content of a class of RE2 with the characters that a pattern matches.

    Args:
        pattern: str, a pattern of one character.
        module: `regex` or `re`, which differ.
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


def splitting_patterns(rules: SpacyRules):
    """spaCy's rules for prefixes, suffixes, infixes and URLs.

    Rules that only fire on what text_standardize has already parted are left out.

    Returns:
        dict from name to RE2 pattern.
    """
    icons = "[" + char_class(r"[\p{So}]") + "]"
    letter, lower, upper = (
        char_class(f"(?V1)[{x}]") for x in (rules.letters, rules.lower, rules.upper)
    )

    def enumerate_icons(pieces):
        return "|".join(piece.replace(r"[\p{So}]", icons) for piece in pieces)

    behind = [piece for piece in rules.suffixes if piece.startswith(_LOOK_BEHIND)]
    plus, degree, currency, unit, dot, initials = (
        piece.removeprefix(_LOOK_BEHIND) for piece in behind
    )
    after_digit = [piece.removeprefix("[0-9])") for piece in (plus, currency, unit)]
    before_dot = char_class("(?V1)" + dot.removesuffix(r")\."))
    url = _url(char_class(r"\w"))
    # Strings that no rule splits: most words, what text_standardize has parted, line ends' mark.
    plain = rf"[A-Za-z]*|[0-9]+|[.]|\x01|{PUNCTUATION}"
    return {
        "punctuation": PUNCTUATION,
        "whole": f"{plain}|{url}",
        "prefix": f"^(?:{enumerate_icons(rules.prefixes)})",
        "suffix": f"(?:{enumerate_icons(x for x in rules.suffixes if x not in behind)})$",
        "suffix_after_digit": f"[0-9](?:{'|'.join(after_digit)})$",
        "suffix_dot": rf"(?s).*(?:[{before_dot}]|°[FfCcKk]|[{upper}][{upper}])\.",
        "infix": rf"\.\.+|…|{icons}",
        "infix_between": rf"([0-9])(\^)([0-9])|([{lower}])(\.)([{upper}])"
        rf"|([{letter}])([:<>=])([{letter}])",
    }


def _url(word):
    """spaCy's pattern for URLs, on strings without white space and slashes.

    Without slashes there is no scheme, and whatever follows the host is its tail.

    Args:
        word: class of the characters that a URL begins and ends with.
    """
    host = r"[a-z0-9]+(?:\.[a-z0-9]+)*\.[a-z]{2}"
    return f"(?:[{word}].*@)?(?:{_public_address()}|{host})(?:.*[{word}])?"


def _public_address():
    """IP addresses but private ones, which spaCy leaves out by looking ahead.

    They are 10.*, 127.*, 169.254.*, 192.168.* and 172.16.* to 172.31.*. (spaCy takes the digits
    of other scripts in them, too.)
    """

    def but(digits):
        return "[" + "".join(sorted(set("0123456789") - set(digits))) + "]"

    number = "1?[0-9][0-9]?|2[0-4][0-9]|25[0-5]"
    last = "[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-4]"
    first = (
        f"[2-9][0-9]?|1{but('0')}?|1{but('2679')}[0-9]|12{but('7')}|16{but('9')}|17{but('2')}"
        f"|19{but('2')}|2[01][0-9]|22[0-3]"
    )
    but_254 = "1?[0-9][0-9]?|2[0-4][0-9]|25[0-35]"
    but_168 = f"[0-9][0-9]?|1{but('6')}[0-9]|16{but('8')}|2[0-4][0-9]|25[0-5]"
    but_16_to_31 = (
        f"[0-9]|{but('123')}[0-9]|1{but('6789')}|3{but('01')}|1[0-9][0-9]|2[0-4][0-9]|25[0-5]"
    )
    first_two = (
        rf"(?:{first})\.(?:{number})|169\.(?:{but_254})|192\.(?:{but_168})|172\.(?:{but_16_to_31})"
    )
    return rf"(?:{first_two})\.(?:{number})\.(?:{last})"


def badness_pattern(pattern):
    """ftfy's test for mojibake, without its layout.

    Args:
        pattern: str, a verbose pattern of `re`.
    """
    bare, in_class, lines = [], False, pattern.split("\n")
    for character in "\n".join(line for line in lines if not line.lstrip().startswith("#")):
        if character == "[" or character == "]":
            in_class = character == "["
        if in_class or not character.isspace():
            bare.append(character)
    bare = "".join(bare)
    for name in (r"\s", r"\w"):
        bare = bare.replace(name, f"[{char_class(name, re)}]")
    return f"(?s).*(?:{bare}).*"


def mojibake_patterns(clues):
    """ftfy's pattern for what looks like UTF-8 read in another encoding.

    Args:
        clues: dict from name to class of characters.

    Returns:
        dict of `mojibake`, a run of such characters, and `before_mojibake`, which goes before.
    """
    after = f"[{clues['utf8_continuation']}]"
    return {
        "mojibake": f"(?:[{clues['utf8_first_of_2']}]{after}"
        f"|[{clues['utf8_first_of_3']}]{after}{{2}}|[{clues['utf8_first_of_4']}]{after}{{3}})+",
        "before_mojibake": f"^|[^{clues['utf8_continuation_strict']}]",
    }

"""Counts the fields of a serialized protocol buffer, before it is parsed."""

import functools
from collections.abc import Mapping

from google.protobuf.descriptor import Descriptor

MOST_FIELDS = 2**18  # more than the choices of the largest request, 256 times 512
_MOST_VARINT_BYTES = 10
_FIXED_SIZES = {1: 8, 5: 4}  # by the number of the field's wire type
_VARINT, _LENGTH_AND_BYTES = 0, 2


def has_too_many_fields(body: bytes, message: Descriptor) -> bool:
    """Returns whether a message, with the messages in it, has more than `MOST_FIELDS` fields.

    An empty entry of a map has two bytes, and 89 times as many once it is parsed. Meanwhile, the
    parser holds Python's interpreter. Malformed messages are left to it.
    """
    if len(body) < 2 * MOST_FIELDS:
        return False  # no field is shorter than two bytes
    count, at, end, nested = 0, 0, len(body), _messages(message)
    outer: list[tuple[int, int, Mapping[int, Descriptor]]] = []  # where the outer messages go on
    try:
        while True:
            if at >= end:
                if not outer:
                    return False
                at, end, nested = outer.pop()
                continue
            count += 1
            if count > MOST_FIELDS:
                return True
            tag, at = body[at], at + 1
            if tag > 127:
                tag, at = _varint(body, at - 1)
            wire_type = tag & 7
            if wire_type in _FIXED_SIZES:
                at += _FIXED_SIZES[wire_type]
            elif wire_type in (_VARINT, _LENGTH_AND_BYTES):
                number, at = body[at], at + 1
                if number > 127:
                    number, at = _varint(body, at - 1)
                if wire_type == _VARINT or not number:
                    continue
                if tag >> 3 in nested:
                    outer.append((at + number, end, nested))
                    end, nested = min(at + number, end), _messages(nested[tag >> 3])
                else:
                    at += number
    except IndexError:  # it is cut off
        return False


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Returns the number that begins at an index, and the index after it."""
    number = 0
    for place in range(_MOST_VARINT_BYTES):
        byte = body[at + place]
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number, at + place + 1
    raise IndexError


@functools.cache
def _messages(message: Descriptor) -> Mapping[int, Descriptor]:
    """Returns the types of a message's fields that hold messages, by their numbers."""
    return {each.number: each.message_type for each in message.fields if each.message_type}

"""The ids that framing and padding put around a text's own."""

from typing import Protocol


class SpecialIds(Protocol):
    """What framing and padding need of a tokenizer, such as `GPT1Tokenizer`."""

    pad_token_id: int
    start_token_id: int
    delimiter_token_id: int
    extract_token_id: int

"""The two normalizations, which turn text into words: `bert` and `original`."""

from gpt1_keras.tokenization.normalization.bert import BertNormalizer
from gpt1_keras.tokenization.normalization.normalizer import Normalizer
from gpt1_keras.tokenization.normalization.original.original_normalizer import OriginalNormalizer

_NORMALIZERS: dict[str, type[Normalizer]] = {
    cls.name: cls for cls in (BertNormalizer, OriginalNormalizer)
}
NORMALIZATIONS = tuple(_NORMALIZERS)


def find_normalizer(name: str) -> type[Normalizer]:
    """Returns the class of the normalization with this name.

    Raises:
        ValueError: there is none.
    """
    if name not in _NORMALIZERS:
        raise ValueError(
            f"normalization={name!r} is unknown; expected one of {sorted(NORMALIZATIONS)}."
        )
    return _NORMALIZERS[name]

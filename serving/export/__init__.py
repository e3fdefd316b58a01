"""Fine-tuned tasks and language models as SavedModels that take raw text."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serving.export.exporter import export

__all__ = ["export"]


def __getattr__(name: str) -> Any:
    # Imported when it is asked for: the modules of this package need not import all of them.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from serving.export.exporter import export

    return export

"""Fine-tuned tasks and language models as SavedModels that take raw text."""

from serving.export.exporter import export

__all__ = ["export"]

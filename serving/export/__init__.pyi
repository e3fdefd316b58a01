from .exporter import export as export

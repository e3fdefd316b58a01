from .export_options import Batching as Batching
from .export_options import Embedding as Embedding
from .export_options import Explanation as Explanation
from .exporter import export as export

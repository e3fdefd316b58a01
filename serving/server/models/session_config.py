"""Makes the ConfigProto for graphs: threads, the GPU's memory, mixed precision."""

from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from serving.server import config_files
from serving.server.options import Options


def session_config(options: Options) -> ConfigProto:
    """Returns the ConfigProto for the flags `--tensorflow_*` and two others.

    Raises:
        OSError: the file of `--tensorflow_session_config_file` cannot be read.
        ConfigError: it is not a ConfigProto in text format.
        ValueError: the flags contradict each other, or `--mixed_precision` is unknown.
    """
    file = options.tensorflow_session_config_file
    config = config_files.read_session_config(file) if file else ConfigProto()
    both = options.tensorflow_session_parallelism
    intra = options.tensorflow_intra_op_parallelism
    inter = options.tensorflow_inter_op_parallelism
    if both and (intra or inter):
        raise ValueError(
            "Expected --tensorflow_session_parallelism, or --tensorflow_intra_op_parallelism and "
            "--tensorflow_inter_op_parallelism; received both"
        )
    # 0 keeps the value in the file.
    if both or intra:
        config.intra_op_parallelism_threads = both or intra
    if both or inter:
        config.inter_op_parallelism_threads = both or inter
    if options.per_process_gpu_memory_fraction:
        fraction = options.per_process_gpu_memory_fraction
        config.gpu_options.per_process_gpu_memory_fraction = fraction
    if options.mixed_precision == "bfloat16":
        rewriting = config.graph_options.rewrite_options
        rewriting.auto_mixed_precision_onednn_bfloat16 = RewriterConfig.ON
    elif options.mixed_precision:
        raise ValueError(
            f"Expected --mixed_precision=bfloat16, received {options.mixed_precision!r}"
        )
    return config

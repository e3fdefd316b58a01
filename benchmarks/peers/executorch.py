"""Hugging Face's model in ExecuTorch, with XNNPACK's quantizer and partitioner, as documented."""

from benchmarks.peers.hugging_face import device_model, outside_tokenizer


def device_classifier(variant, folder, job):
    """Makes a classifier with dynamic int8."""
    import torch
    from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
    from executorch.runtime import Runtime

    torch.set_num_threads(1)
    _unsafe_reset_threadpool(1)
    path = folder / "model.pte"
    if not path.exists():
        path.write_bytes(_lowered(folder, job))
    method = Runtime.get().load_program(path).load_method("forward")
    frame, tokenizer_size = outside_tokenizer(folder, job)

    def score(texts):
        return method.execute([torch.tensor([frame(texts)])])[0].numpy()[0]

    return score, path.stat().st_size + tokenizer_size


def _lowered(folder, job):
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    ids = (torch.ones([1, 8], dtype=torch.int64),)
    shapes = ({1: torch.export.Dim("length", min=2, max=job["sequence_length"])},)
    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    graph = torch.export.export(device_model(folder), ids, dynamic_shapes=shapes).module()
    graph = prepare_pt2e(graph, XNNPACKQuantizer().set_global(config))
    graph(*ids)
    program = torch.export.export(convert_pt2e(graph), ids, dynamic_shapes=shapes)
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    return lowered.to_executorch().buffer

"""Text to ids: normalization and byte-pair encoding on integer tensors.

All that runs on text consists of core TensorFlow ops on flat integer tensors, so one implementation
serves eager calls, `tf.data` pipelines and SavedModels in the C++ runtime. Without TensorFlow,
`list_backend` does the same with Hugging Face's `tokenizers`.
"""

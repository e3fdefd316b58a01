"""Programs that use trained models: export, server, query and tflite."""

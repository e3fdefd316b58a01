"""`TrainingStep`, the training step on the Keras backend at hand.

It is mixed into tasks, and adds accumulation to `compile` and `fit`: a batch is computed in slices
whose gradients are added up, so that a large batch fits a small memory.
"""

from typing import TYPE_CHECKING

import keras

if TYPE_CHECKING or keras.backend.backend() != "jax":
    from gpt1_keras.optimization.tensorflow_step import TensorFlowStep as TrainingStep
else:
    from gpt1_keras.optimization.jax_step import JaxStep as TrainingStep

__all__ = ["TrainingStep"]

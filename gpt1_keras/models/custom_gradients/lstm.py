"""An LSTM layer that trains by a few large products and two small loops.

Keras multiplies by every weight, and adds to every weight's gradient, at each position of a
sequence. Here the loops compute only what must wait for the position before: the product with the
recurrent kernel in the forward pass, and with its transpose in the backward pass.
"""

from typing import Any

import keras
from keras import ops

from gpt1_keras.types import Tensor


@keras.saving.register_keras_serializable(package="gpt1_keras")
class LSTM(keras.layers.LSTM):
    """`keras.layers.LSTM` that returns all hidden states, with default activations and no dropout.

    In inference, and with an initial state or a mask, it is Keras's own layer: exports should not
    hold a custom gradient.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(units, return_sequences=True, **kwargs)

    def call(
        self,
        sequences: Tensor,
        initial_state: list[Tensor] | None = None,
        mask: Tensor | None = None,
        training: bool | None = False,
    ) -> Tensor:
        """Maps float `[batch, length, in]` to hidden states, float `[batch, length, units]`."""
        if not training or initial_state is not None or mask is not None:
            return super().call(sequences, initial_state, mask, training)
        weights = (self.cell.kernel, self.cell.recurrent_kernel, self.cell.bias)
        return lstm(sequences, *map(ops.copy, weights))

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["return_sequences"]
        return config


def lstm(x: Tensor, kernel: Tensor, recurrent_kernel: Tensor, bias: Tensor) -> Tensor:
    """Returns the hidden states of Hochreiter and Schmidhuber's LSTM with forget gates.

    With the gates' sums z = x kernel + h' recurrent_kernel + bias and i, f, o = sigmoid(z_i),
    sigmoid(z_f), sigmoid(z_o), the cells are c = f c' + i tanh(z_c), and the hidden states are
    h = o tanh(c). A prime marks the previous position; before the first, h' and c' are 0. Only x,
    h and c are kept for the gradient.

    Args:
        x: float `[batch, length, in]`.
        kernel: float `[in, 4 units]`, for the gates i, f, c, o.
        recurrent_kernel: float `[units, 4 units]`.
        bias: float `[4 units]`.

    Returns:
        float `[batch, length, units]`.
    """
    units = recurrent_kernel.shape[0]

    @ops.custom_gradient
    def apply(
        x: Tensor, kernel: Tensor, recurrent_kernel: Tensor, bias: Tensor
    ) -> tuple[Tensor, Any]:
        x = _swap_batch_and_length(x)
        zeros = ops.zeros((ops.shape(x)[1], units), x.dtype)

        def step(carried: Any, input_sums: Tensor) -> Any:
            state, cell = carried
            sums = input_sums + ops.matmul(state, recurrent_kernel)
            input, forget, candidate, output = _gates(sums)
            cell = forget * cell + input * candidate
            carried = (output * ops.tanh(cell), cell)
            return carried, carried

        _, (states, cells) = ops.scan(step, (zeros, zeros), ops.matmul(x, kernel) + bias)

        def gradient(*args: Tensor, upstream: Tensor = None) -> tuple[Tensor, ...]:
            upstream = _swap_batch_and_length(args[0] if upstream is None else upstream)
            past_states = ops.concatenate([zeros[None], states[:-1]])
            past_cells = ops.concatenate([zeros[None], cells[:-1]])
            sums = ops.matmul(x, kernel) + bias + ops.matmul(past_states, recurrent_kernel)
            sums_gradient = _gradient_of_sums(sums, past_cells, cells, recurrent_kernel, upstream)
            rows = ops.reshape(sums_gradient, (-1, 4 * units))

            def kernel_gradient(inputs: Tensor) -> Tensor:
                inputs = ops.reshape(inputs, (-1, inputs.shape[2]))
                return ops.matmul(ops.transpose(inputs), rows)

            return (
                _swap_batch_and_length(ops.matmul(sums_gradient, ops.transpose(kernel))),
                kernel_gradient(x),
                kernel_gradient(past_states),
                ops.sum(rows, axis=0),
            )

        return _swap_batch_and_length(states), gradient

    return apply(x, kernel, recurrent_kernel, bias)


def _gradient_of_sums(
    sums: Tensor, past_cells: Tensor, cells: Tensor, recurrent_kernel: Tensor, upstream: Tensor
) -> Tensor:
    """Returns the gradient of the gates' sums, float `[length, batch, 4 units]`."""
    input, forget, candidate, output = _gates(sums)
    tanh_cells = ops.tanh(cells)
    # All factors that need no loop, in one tensor: Keras cannot scan several of unknown length.
    factors = ops.concatenate(
        [
            upstream,
            output * (1.0 - ops.square(tanh_cells)),  # of the state by the cell
            forget,
            # Of the cell by the sums of the first three gates; of the state by that of the output.
            candidate * input * (1.0 - input),
            past_cells * forget * (1.0 - forget),
            input * (1.0 - ops.square(candidate)),
            tanh_cells * output * (1.0 - output),
        ],
        axis=-1,
    )
    transposed_kernel, units = ops.transpose(recurrent_kernel), cells.shape[2]

    def step(carried: Any, factors: Tensor) -> Any:
        sums_gradient, cell_gradient = carried
        upstream, by_cell, forget, by_sums = ops.split(factors, [units, 2 * units, 3 * units], -1)
        state_gradient = upstream + ops.matmul(sums_gradient, transposed_kernel)
        cell_gradient += state_gradient * by_cell
        gradients = ops.concatenate([cell_gradient] * 3 + [state_gradient], axis=-1)
        carried = (by_sums * gradients, cell_gradient * forget)
        return carried, carried

    start = (ops.zeros_like(sums[0]), ops.zeros_like(cells[0]))
    _, (sums_gradient, _) = ops.scan(step, start, factors, reverse=True)
    return sums_gradient


def _gates(sums: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the gates input, forget, candidate and output."""
    input, forget, candidate, output = ops.split(sums, 4, axis=-1)
    return ops.sigmoid(input), ops.sigmoid(forget), ops.tanh(candidate), ops.sigmoid(output)


def _swap_batch_and_length(x: Tensor) -> Tensor:
    """Transposes `[batch, length, width]` to `[length, batch, width]`, or back."""
    return ops.transpose(x, (1, 0, 2))

"""An LSTM layer whose training is a few large products and two slim loops.

Keras multiplies by every weight, and adds to every weight's gradient, at each place of a text. Here
the loops hold only what must wait for the place before: in the forward pass the product with the
recurrent kernel, and in the backward pass the product with its transpose.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="gpt1_keras")
class LSTM(keras.layers.LSTM):
    """`keras.layers.LSTM` that gives all its states, with the default activations and no dropout.

    In inference it is Keras's own, as the lean one would bring its gradient into exports; also
    where it is given a state to start from, or a mask.
    """

    def __init__(self, units, **kwargs):
        super().__init__(units, return_sequences=True, **kwargs)

    def call(self, sequences, initial_state=None, mask=None, training=False):
        """Float `[batch, length, in]` to the states, `[batch, length, units]`."""
        if not training or initial_state is not None or mask is not None:
            return super().call(sequences, initial_state, mask, training)
        weights = (self.cell.kernel, self.cell.recurrent_kernel, self.cell.bias)
        return lstm(sequences, *map(ops.copy, weights))

    def get_config(self):
        return {
            name: value
            for name, value in super().get_config().items()
            if name != "return_sequences"
        }


def lstm(x, kernel, recurrent_kernel, bias):
    """The states of Hochreiter and Schmidhuber's network with forget gates, from zeros on.

    With the gates' sums z = x kernel + h' recurrent_kernel + bias, of the states h' before, and
    i, f, o = sigmoid(z_i), sigmoid(z_f), sigmoid(z_o), the cells are c = f c' + i tanh(z_c), and
    the states h = o tanh(c). Only x, h and c are kept for the gradient.

    Args:
        x: float `[batch, length, in]`.
        kernel: float `[in, 4 units]`, for i, f, c, o.
        recurrent_kernel: float `[units, 4 units]`.
        bias: float `[4 units]`.

    Returns:
        float `[batch, length, units]`.
    """
    units = recurrent_kernel.shape[0]

    @ops.custom_gradient
    def apply(x, kernel, recurrent_kernel, bias):
        x = _swap(x)
        zeros = ops.zeros((ops.shape(x)[1], units), x.dtype)

        def step(carried, from_input):
            state, cell = carried
            enter, forget, new, out = _gates(from_input + ops.matmul(state, recurrent_kernel))
            cell = forget * cell + enter * new
            carried = (out * ops.tanh(cell), cell)
            return carried, carried

        _, (states, cells) = ops.scan(step, (zeros, zeros), ops.matmul(x, kernel) + bias)

        def gradient(*args, upstream=None):
            upstream = _swap(args[0] if upstream is None else upstream)
            past_states = ops.concatenate([zeros[None], states[:-1]])
            past_cells = ops.concatenate([zeros[None], cells[:-1]])
            sums = ops.matmul(x, kernel) + bias + ops.matmul(past_states, recurrent_kernel)
            slopes = _slopes_of_sums(sums, past_cells, cells, recurrent_kernel, upstream)
            rows = ops.reshape(slopes, (-1, 4 * units))

            def product_with(inputs):
                return ops.matmul(ops.transpose(ops.reshape(inputs, (-1, inputs.shape[2]))), rows)

            return (
                _swap(ops.matmul(slopes, ops.transpose(kernel))),
                product_with(x),
                product_with(past_states),
                ops.sum(rows, axis=0),
            )

        return _swap(states), gradient

    return apply(x, kernel, recurrent_kernel, bias)


def _slopes_of_sums(sums, past_cells, cells, recurrent_kernel, upstream):
    """The loss's derivatives by the gates' sums, `[length, batch, 4 units]`."""
    enter, forget, new, out = _gates(sums)
    squashed = ops.tanh(cells)
    by_cell = out * (1.0 - ops.square(squashed))  # derivatives of the states by the cells
    # One tensor, as Keras cannot scan several of unknown length.
    of_places = ops.concatenate(
        [
            upstream,
            by_cell,
            forget,
            # Derivatives by the gates' sums: of the cells, and by that of `out` of the states.
            new * enter * (1.0 - enter),
            past_cells * forget * (1.0 - forget),
            enter * (1.0 - ops.square(new)),
            squashed * out * (1.0 - out),
        ],
        axis=-1,
    )
    back, units = ops.transpose(recurrent_kernel), cells.shape[2]

    def step(carried, of_place):
        slope, cell_slope = carried
        upstream, by_cell, forget, by_sums = ops.split(of_place, [units, 2 * units, 3 * units], -1)
        state_slope = upstream + ops.matmul(slope, back)
        cell_slope += state_slope * by_cell
        slope = by_sums * ops.concatenate([cell_slope] * 3 + [state_slope], axis=-1)
        carried = (slope, cell_slope * forget)
        return carried, carried

    start = (ops.zeros_like(sums[0]), ops.zeros_like(cells[0]))
    _, (slopes, _) = ops.scan(step, start, of_places, reverse=True)
    return slopes


def _gates(sums):
    enter, forget, new, out = ops.split(sums, 4, axis=-1)
    return ops.sigmoid(enter), ops.sigmoid(forget), ops.tanh(new), ops.sigmoid(out)


def _swap(x):
    """`[batch, length, width]` to `[length, batch, width]`, or back."""
    return ops.transpose(x, (1, 0, 2))

"""GPT1Backbone: the decoder of GPT-1 as a functional Keras model."""

import os
from typing import Any, ClassVar, Unpack

import keras
from keras import ops

from gpt1_keras.models.attention import BranchAttention, FullAttention, attend_at
from gpt1_keras.models.causal_backbone import CausalBackbone, check_sizes, token_inputs
from gpt1_keras.models.layers import Dropout, ReversibleEmbedding, TokenAndPositionEmbedding
from gpt1_keras.models.left_padding import MoveBack, MoveToFront
from gpt1_keras.models.transformer_block import TransformerBlock
from gpt1_keras.transformers_writers import write_for_transformers
from gpt1_keras.types import BackboneArguments, Tensor


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1Backbone(CausalBackbone):
    """The decoder of GPT-1 (Radford et al., 2018, section 3.1).

    It maps `{"token_ids", "padding_mask"}`, int32 `[batch, length]`, to hidden states, float
    `[batch, length, hidden_dim]`. Tokens whose mask is 0 have no influence on the others, at any
    index; without a mask, all tokens are read. The defaults are the paper's (section 4.1): 12
    blocks of width 768, 117 million parameters. Dropout applies to the sum of the embeddings, as in
    Hugging Face's port; the released code drops entries of the embedding tables.

    Args:
        vocabulary_size: number of tokens, special tokens included: 40,478 and three in the paper.
        num_layers: number of blocks.
        num_heads: number of attention heads of a block; must divide `hidden_dim`.
        hidden_dim: width of the hidden states.
        intermediate_dim: width of the feed-forward layers.
        dropout: rate of dropout on embeddings, attention and residual branches.
        max_sequence_length: length of the context.
        dtype: Keras dtype or policy, such as `"mixed_bfloat16"`. Softmax and layer normalisation
            are always computed in float32.
        **kwargs: `fine_tuning` and `num_untrained_tokens`, as in `CausalBackbone`, and what all
            Keras models take.

    Raises:
        ValueError: a size is not a whole number of at least 1, `dropout` is not from 0 to 1,
            `num_heads` does not divide `hidden_dim`, an input is longer than the context, or inputs
            have other names.

    A variant is a subclass with another `block_cls`, a `TransformerBlock` that overrides `project`
    or `finish`. If `project` adds positions itself, such as rotary ones, `embeds_positions` is
    False.

    Example:
    ```python
    backbone = gpt1_keras.GPT1Backbone()
    backbone({"token_ids": np.array([[3570, 1276, 267]])})  # float [1, 3, 768]
    ```
    """

    block_cls: ClassVar[type[TransformerBlock]] = TransformerBlock
    embeds_positions: ClassVar[bool] = True

    def __init__(
        self,
        vocabulary_size: int = 40481,
        num_layers: int = 12,
        num_heads: int = 12,
        hidden_dim: int = 768,
        intermediate_dim: int = 3072,
        dropout: float = 0.1,
        max_sequence_length: int = 512,
        dtype: keras.DTypePolicy | str | None = None,
        **kwargs: Unpack[BackboneArguments],
    ) -> None:
        check_sizes(
            dropout,
            vocabulary_size=vocabulary_size,
            num_layers=num_layers,
            num_heads=num_heads,
            hidden_dim=hidden_dim,
            intermediate_dim=intermediate_dim,
            max_sequence_length=max_sequence_length,
        )
        # === Layers ===
        self.embedding = TokenAndPositionEmbedding(
            vocabulary_size,
            max_sequence_length,
            hidden_dim,
            has_positions=self.embeds_positions,
            dtype=dtype,
            name="embedding",
        )
        self.embedding_dropout = Dropout(dropout, dtype=dtype, name="embedding_dropout")
        self.blocks = []
        for i in range(num_layers):
            block = self.block_cls(
                num_heads, intermediate_dim, dropout, dtype=dtype, name=f"block_{i}"
            )
            self.blocks.append(block)

        # === Functional model ===
        inputs = token_inputs()
        # Padding moves to the right, where causal attention does not see it.
        token_ids = MoveToFront(dtype=dtype, name="move_to_front")(*inputs.values())
        # Embed tokens and positions.
        x = self.embedding(token_ids)
        x = self.embedding_dropout(x)
        # Apply the blocks.
        for block in self.blocks:
            x = block(x)
        x = MoveBack(dtype=dtype, name="move_back")(x, inputs["padding_mask"])
        super().__init__(inputs=inputs, outputs=x, dtype=dtype, **kwargs)

        # === Configuration ===
        self.vocabulary_size = vocabulary_size
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.intermediate_dim = intermediate_dim
        self.max_sequence_length = max_sequence_length
        self.dropout = dropout

    @property
    def token_embedding(self) -> ReversibleEmbedding:
        """The token table, tied to the output."""
        return self.embedding.tokens

    def encode_branches(
        self, token_ids: Tensor, positions: Tensor, branches: Tensor, extract_indices: Tensor
    ) -> Tensor:
        """Returns the hidden states of branches after a shared prefix; see `visible_keys`.

        Args:
            token_ids: int32 `[batch, length]`. All arguments may be symbolic.
            positions: int32 `[batch, length]`, each token's position in its own sequence.
            branches: int32 `[batch, length]`.
            extract_indices: int32 `[batch, branches]`, the index of each branch's last token.

        Returns float `[batch, length, hidden_dim]`.
        """
        x = self.embedding_dropout(self.embedding(token_ids, positions=positions))
        for block in self.blocks:
            x = block(x, attention=BranchAttention(positions, branches))
        return x

    def states_at(
        self,
        token_ids: Tensor,
        indices: Tensor,
        positions: Tensor | None = None,
        branches: Tensor | None = None,
    ) -> Tensor:
        """Like `CausalBackbone.states_at`; the last block is computed only for these tokens."""
        if not self.is_cut_at_attention:
            return super().states_at(token_ids, indices, positions, branches)
        x = self.embedding(token_ids, positions=positions)
        return self.states_of_embeddings(x, indices, positions, branches)

    def states_of_embeddings(
        self,
        x: Tensor,
        indices: Tensor,
        positions: Tensor | None = None,
        branches: Tensor | None = None,
    ) -> Tensor:
        """Like `states_at`, from embedded tokens, float `[batch, length, hidden_dim]`.

        `is_cut_at_attention` must be true.
        """
        is_full = branches is None
        attention = FullAttention.of(x) if is_full else BranchAttention(positions, branches)
        indices = ops.maximum(indices, 0)
        *blocks, last = self.blocks
        for block in blocks:
            x = block(x, attention=attention)
        qkv = last.project(x, attention.positions)
        attended = attend_at(qkv, last.num_heads, indices, branches)
        return last.finish(attended, ops.take_along_axis(x, indices[:, :, None], axis=1))

    @property
    def is_cut_at_attention(self) -> bool:
        """Whether no block overrides `call`, so that all are `project`, attention, `finish`."""
        return all(type(block).call is TransformerBlock.call for block in self.blocks)

    def export_to_transformers(self, path: str | os.PathLike[str]) -> None:
        """Writes config.json and model.safetensors; see `gpt1_keras.convert.save_hugging_face`."""
        write_for_transformers(self, path)

    def default_lora_layer_names(self) -> list[str]:
        return ["qkv"]

    def get_quantization_layer_structure(self, mode: str) -> dict[str, list] | None:
        """Returns what `quantize("gptq")` and `quantize("awq")` calibrate, block after block."""
        if mode not in ("gptq", "awq"):
            return None
        return {"pre_block_layers": [self.embedding], "sequential_blocks": self.blocks}

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "intermediate_dim": self.intermediate_dim,
            "max_sequence_length": self.max_sequence_length,
            "dropout": self.dropout,
        }


def check_no_variant(backbone: Any, reader: str) -> None:
    """Checks that a backbone is not a variant of GPT-1, before its weights alone are read.

    Raises ValueError, which names the reader, if it, or one of its blocks, is of another class.
    """
    blocks = getattr(backbone, "blocks", [])
    classes = dict.fromkeys(type(part) for part in (backbone, *blocks))
    if others := [cls.__name__ for cls in classes if cls not in (GPT1Backbone, TransformerBlock)]:
        raise ValueError(
            f"{reader} takes the weights of a GPT1Backbone and its TransformerBlocks alone, and "
            f"would leave out what another class computes. Received: {', '.join(others)}."
        )

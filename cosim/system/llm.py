"""Shapes of decoder-only language models: weights, KV cache and work per token in closed form.

FP16 throughout (2 bytes).  Biases, norms and position embeddings are left out: below 0.1 % of the bytes of the large
models.  Source: public configurations of the models, see ``data/models.toml``.
"""

from __future__ import annotations

from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["BYTES", "ModelShape"]

BYTES = 2
"""Bytes per number (FP16; paper section V-A)."""


class ModelShape(BaseModel):
    """A decoder-only transformer.

    Parameters
    ----------
    layers, hidden_size, heads, kv_heads, ffn_size, vocabulary, max_positions
        As in the model's ``config.json``; ``kv_heads`` < ``heads`` is grouped-query attention.
    ffn_matrices
        2 (up, down) or 3 (gate, up, down).
    head_size
        Defaults to ``hidden_size / heads``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, ignored_types=(cached_property,))

    layers: int = Field(ge=1)
    hidden_size: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    ffn_size: int = Field(ge=1)
    ffn_matrices: int = Field(ge=2, le=3)
    vocabulary: int = Field(ge=1)
    max_positions: int = Field(ge=1)
    tied_embeddings: bool
    source: str
    head_size: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _divides(self) -> ModelShape:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}")
        if not self.head_size:
            if self.hidden_size % self.heads:
                raise ValueError(f"hidden_size {self.hidden_size} must be a multiple of heads {self.heads}")
            object.__setattr__(self, "head_size", self.hidden_size // self.heads)
        return self

    @property
    def kv_group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    @property
    def attention_width(self) -> int:
        """Length of all query heads together."""
        return self.heads * self.head_size

    @cached_property
    def layer_matrices(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of the FC matrices of one layer: Q, K and V together, projection, FFN."""
        qkv = self.attention_width + 2 * self.kv_heads * self.head_size
        up = (self.hidden_size, self.ffn_size)
        return (
            (self.hidden_size, qkv),
            (self.attention_width, self.hidden_size),
            *[up] * (self.ffn_matrices - 1),
            (self.ffn_size, self.hidden_size),
        )

    @cached_property
    def fc_weights(self) -> int:
        """Weights read by one forward pass: all layers and the LM head."""
        per_layer = sum(inputs * outputs for inputs, outputs in self.layer_matrices)
        return self.layers * per_layer + self.vocabulary * self.hidden_size

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of all stored weights, the input embedding included."""
        embedding = 0 if self.tied_embeddings else self.vocabulary * self.hidden_size
        return BYTES * (self.fc_weights + embedding)

    @cached_property
    def kv_bytes_per_token(self) -> int:
        """Bytes of K and V of one token, all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * BYTES

    def flop_per_token(self, context: int) -> int:
        """FLOP of one token that attends to ``context`` tokens (2 per MAC)."""
        return 2 * self.fc_weights + 4 * self.layers * self.attention_width * context

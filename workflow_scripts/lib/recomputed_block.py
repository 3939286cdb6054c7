"""What a block that is computed again holds in its backward pass: compiled for CUDA, as a graph. Without torch.

Letters as in `memory_model`; S is the size of all scores in float32. The graph computes the block from its input and
goes back through it at once, so its largest moment is in its MLP, or at the scores of plain attention. All of it was
read off the code that was generated for such blocks, and off what they allocated, on H200s (torch 2.11).
"""

import dataclasses
from typing import Self

from workflow_scripts.lib.block_memory import by_blocks, element_bytes, residual_bytes
from workflow_scripts.lib.counts import block_matrices
from workflow_scripts.lib.specs import ModelShape, StepSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Held:
    """Bytes at one moment: of activations per token, and of matrices in half precision and of their gradients."""

    per_token: int
    casts: int = 0
    gradients: int = 0


def recomputed_moments(shape: ModelShape, step: StepSpec) -> dict[str, Held]:
    """Gives what such a block holds, by the names of `pass_moments.backward_moments`: those that differ from others'.

    Beside them `product_backward`: where another product of the MLP than that at its tuned kernel takes most.
    """
    if not by_blocks(step):
        raise ValueError(f"{step} compiles no block of its own")
    block = _Block.of(shape, step)
    of_mlp = _llama_backward if block.llama else _dropped_backward if block.dropout else _kept_backward
    return of_mlp(block) | (_scores_backward(block) if block.math else {})


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Block:
    llama: bool
    dropout: bool
    math: bool
    bias: bool
    e: int  # bytes of an element of a product
    fp16: bool
    d: int
    hidden: int  # bytes per token of one tensor of the MLP
    S: int  # bytes per token of the scores
    always: int  # bytes per token: the gradient that came in, and a number or two for each row of a normalisation
    matrices: tuple[int, ...]  # elements, in the order of `block_matrices`
    casts: tuple[int, ...]  # bytes of their copies in half precision

    @classmethod
    def of(cls, shape: ModelShape, step: StepSpec) -> Self:
        d, e, heads, llama = shape.n_embd, element_bytes(step), shape.n_head, shape.architecture == "llama"
        math, dropout = step.attention_on("cuda", shape.sequence_length) == "math", shape.dropout > 0
        matrices = tuple(rows * columns for rows, columns in block_matrices(shape))
        # Where turning q, k and v copies nothing, v keeps the product of all of them alive.
        whole = 2 * e * d if math and e == 4 and 1 in (heads, step.batch_size // step.accumulation) else 0
        # Of each row of scores the sum, or beside dropout its maximum, too, and whether it sees nothing.
        of_scores = 4 * heads if not math else 9 * heads if dropout else 0
        of_norms = 8 if llama else 12 if dropout else 16
        return cls(
            llama=llama,
            dropout=dropout,
            math=math,
            bias=shape.bias,
            e=e,
            fp16=step.precision == "fp16",
            d=d,
            hidden=e * shape.n_inner,
            S=4 * heads * shape.sequence_length,
            always=residual_bytes(step) * d + of_norms + of_scores + whole,
            matrices=matrices,
            casts=tuple(2 * size if e == 2 else 0 for size in matrices),
        )

    @property
    def half(self) -> bool:
        return self.e == 2

    @property
    def before_mlp(self) -> int:
        """Bytes per token of what both normalisations and attention put out, its product, q, k, v, and of scores."""
        kept = 0 if not self.math else self.S if not self.dropout else self.S * 5 // 2 if self.half else self.S * 3
        return self.always + 7 * self.e * self.d + kept

    @property
    def in_float(self) -> int:
        """Bytes per token of queries in float32 and of the cast of the gradient that came in."""
        return 6 * self.d if self.fp16 and self.math and not self.dropout else 0


def _llama_backward(block: _Block) -> dict[str, Held]:
    """Of gate, up and their product what was put out, and the gradients of the first two."""
    turned = 2 if not block.math else 0 if not block.dropout else 3 if block.half else 1  # tensors beside q, k and v
    bits = 2 * block.d if block.dropout else 0
    held = block.before_mlp + turned * block.e * block.d + bits + block.in_float
    late = block.half and block.math and not block.dropout  # the last matrix's gradient, so that its copy is there
    if block.in_float:
        mlp = Held(per_token=held + 5 * block.hidden, casts=sum(block.casts))
        return {
            "mlp_backward": mlp,
            "product_backward": dataclasses.replace(mlp, per_token=mlp.per_token + block.in_float),
        }
    if late:
        return {"mlp_backward": Held(per_token=held + 6 * block.hidden, casts=sum(block.casts))}
    early = 4 * block.matrices[3] if block.half or block.dropout or block.math else 0
    return {"mlp_backward": Held(per_token=held + 5 * block.hidden, casts=sum(block.casts[:3]), gradients=early)}


def _dropped_backward(block: _Block) -> dict[str, Held]:
    """GPT-2's with dropout: the stream in float32, the bits of one dropout, and of the other until it is done."""
    held = block.before_mlp + 6 * block.d + 2 * block.hidden
    # What was put out goes with the product's gradient; a bias's is summed in parts of 128 rows.
    at_cast = held - (0 if block.math else block.e * block.d) + (block.d // 32 if block.bias else 0)
    down = block.matrices[3]
    found = {
        "mlp_backward": Held(per_token=held + 2 * block.d, casts=sum(block.casts)),
        "cast_backward": Held(per_token=at_cast, casts=sum(block.casts[:3]), gradients=(6 if block.half else 4) * down),
    }
    if block.math and block.bias:  # gelu's output has its gradient before the matrix that read it
        new_down = 0 if block.half else 4 * down
        found["product_backward"] = Held(per_token=held + block.hidden, casts=sum(block.casts), gradients=new_down)
    return found


def _kept_backward(block: _Block) -> dict[str, Held]:
    """GPT-2's without dropout: what went into gelu and came out, and the gradient of that."""
    cast = 2 * block.d if block.fp16 and not block.math else 0
    casts = sum(block.casts) if block.math else sum(block.casts[:3])
    return {"mlp_backward": Held(per_token=block.before_mlp + cast + block.in_float + 3 * block.hidden, casts=casts)}


def _scores_backward(block: _Block) -> dict[str, Held]:
    """Plain attention, computed again and backward; in half precision its gradient is there in half and in float32."""
    found = {}
    if block.half and block.dropout:  # the softmax, dropout's factors, and what it leaves, in half as well
        again = block.always + (16 if block.llama else 22) * block.d + block.S * 7 // 2
        found["again_backward"] = Held(per_token=again, casts=sum(block.casts) if block.llama else block.casts[0])
    if block.dropout:
        n_tensors, n_scores = 9 if block.llama else 5 if block.half else 7, 3
    else:
        n_tensors, n_scores = 8 if block.fp16 else 7 if block.half else 9, 2
    in_half = block.half and not block.dropout  # gradients of matrices, which take the places of copies
    found["attention_backward"] = Held(
        per_token=block.always + n_tensors * block.e * block.d + n_scores * block.S,
        casts=sum(block.casts) if in_half else block.casts[0],
        gradients=0 if in_half else 4 * sum(block.matrices[1:]),
    )
    return found

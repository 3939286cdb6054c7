"""What kind of work a profiled operator or kernel does, told by its name."""

import re

IDLE = "idle or untraced"
# Where CUDA's profiling interface holds the host up or works for itself (CUpti_ActivityOverheadKind): listed among the
# operators, with a time of its own in which the device may do anything.
OVERHEADS = frozenset(
    {
        "Activity Buffer Request", "Buffer Flush", "Command Buffer Full", "Driver Compiler", "Instrumentation",
        "Lazy Function Loading", "Resource", "Runtime Triggered Module Loading", "UVM Activity Init",
    }
)  # fmt: skip

# The first that matches wins, so the particular stands before the general. Names are those of ATen operators, of
# autograd nodes, of CUDA kernels (cuBLAS, CUTLASS, FlashAttention, ATen) and of kernels that torch.compile writes,
# which are named after what they fuse: `triton_per_fused_native_layer_norm_0`.
_PATTERNS = (
    # Fused attention only. Attention written as products and a softmax cannot be told from others by name.
    ("attention", r"attention|flash_fwd|flash_bwd|fmha|sdpa|cudnn::fusion|unpack_cudnn"),
    (
        "optimizer",
        r"^optimizer\.|multi_tensor_apply|_fused_(adam|sgd|adagrad)|_foreach_|foreach|adamw?_kernel|lpnorm|_amp_",
    ),
    ("matrix product", r"::(mm|addmm|_addmm_activation|bmm|baddbmm|matmul|linear|mv|addmv|dot|einsum|_scaled_mm)$"),
    ("matrix product", r"gemm|cutlass|cublas|\bxmma|mkldnn_linear|_linear_pointwise|triton_tem|nvjet|splitk"),
    # The softmax of the loss comes as a logarithm; that of attention, where it is spelled out, does not.
    ("loss", r"log_?softmax|nll_?loss|cross_?entropy|head_?loss|logsumexp|argmax"),
    ("softmax", r"softmax"),
    ("normalisation", r"layer_?norm|rms_?norm|batch_?norm|group_?norm|var_mean|rsqrt"),
    ("embedding", r"embedding|index_put|indexselect|index_select|gather|scatter|::index(_add)?_?$|vectorized_gather"),
    ("copy", r"memcpy|copy|::(clone|contiguous|to|cat|stack|slice_backward|roll)$|catarray"),
    ("elementwise", r"elementwise|triton_(poi|red|per)|memset|reduce_kernel|graph_\d+_.*fused|cpp_fused|fused_"),
    (
        "elementwise",
        r"::(add|sub|mul|div|neg|pow|sqrt|rsqrt|exp|log|tanh|sin|cos|gelu|silu|sigmoid|relu|square|where|mean|sum|"
        r"norm|linalg_vector_norm|fill|zero|zeros|ones|ones_like|zeros_like|full|full_like|arange|addcmul|addcdiv|lerp|"
        r"clamp|clamp_min|clamp_max|minimum|maximum|reciprocal|isfinite|eq|ne|lt|le|gt|ge|abs|all|any|bernoulli|"
        r"native_dropout|dropout|masked_fill|threshold|tril|triu)_?(_backward)?$",
    ),
    ("optimizer", r"\badam"),
)
_COMPILED = tuple((category, re.compile(pattern, re.IGNORECASE)) for category, pattern in _PATTERNS)

CATEGORIES = (*dict.fromkeys(category for category, _ in _PATTERNS), "other", IDLE)


def category_of(operator: str) -> str:
    """Gives one of `CATEGORIES` but `IDLE`; `other` for views, allocation, autograd's own nodes and what is unknown."""
    return next((category for category, pattern in _COMPILED if pattern.search(operator)), "other")

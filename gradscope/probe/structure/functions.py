"""The names of the torch functions that the search for residual additions has to know."""

from __future__ import annotations

SUMS = frozenset({
    "__add__", "__iadd__", "__isub__", "__radd__", "__rsub__", "__sub__", "add", "add_", "addbmm", "addbmm_",
    "addcdiv", "addcdiv_", "addcmul", "addcmul_", "addmm", "addmm_", "addmv", "baddbmm", "baddbmm_", "cat",
    "concat", "concatenate", "hstack", "index_add", "index_add_", "index_put", "index_put_", "lerp", "lerp_", "mean",
    "rsub", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "sub", "sub_", "subtract", "subtract_",
    "sum",
})  # fmt: skip
"""Functions that add, or put tensors next to each other."""

CONCATENATIONS = frozenset({"cat", "concat", "concatenate", "hstack"})
"""Those of them that put tensors next to each other."""

PRODUCTS = frozenset({
    "__imul__", "__itruediv__", "__mul__", "__rmul__", "__truediv__", "div", "div_", "mul", "mul_", "multiply",
    "multiply_", "true_divide",
})  # fmt: skip
DIVISIONS = frozenset(["__itruediv__", "__truediv__", "div", "div_", "true_divide"])

WEIGHTED = frozenset({
    "__matmul__", "_native_multi_head_attention", "addmm", "batch_norm", "bilinear", "bmm", "conv1d", "conv2d",
    "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "einsum", "group_norm", "gru",
    "gru_cell", "instance_norm", "layer_norm", "linear", "lstm", "lstm_cell", "matmul", "mm",
    "multi_head_attention_forward", "rms_norm", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell",
    "scaled_dot_product_attention", "stack",
})  # fmt: skip
"""Calls through which a tensor that needs no gradient enters the part of the model that learns."""

ONE_STREAM = frozenset({
    "batch_norm", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "group_norm", "instance_norm", "layer_norm", "linear", "rms_norm",
})  # fmt: skip
"""Of these only the first tensor is data; the others are weights and statistics, even where they need no gradient."""

_OPERATIONS = {
    "linear": "Linear", "layer_norm": "NativeLayerNorm", "batch_norm": "NativeBatchNorm",
    "group_norm": "NativeGroupNorm", "rms_norm": "RmsNorm", "instance_norm": "InstanceNorm", "matmul": "Matmul",
    "__matmul__": "Matmul", "mm": "Mm", "bmm": "Bmm", "einsum": "Einsum", "conv1d": "Convolution",
    "conv2d": "Convolution", "conv3d": "Convolution", "embedding": "Embedding",
    "scaled_dot_product_attention": "ScaledDotProductAttention",
    "multi_head_attention_forward": "MultiHeadAttentionForward", "__getitem__": "Index", "chunk": "Split",
    "split": "Split", "dropout": "NativeDropout", "to": "ToCopy", "float": "ToCopy", "reshape": "View",
    "flatten": "View", "contiguous": "Clone", "type": "ToCopy", "type_as": "ToCopy", "half": "ToCopy",
    "bfloat16": "ToCopy", "interpolate": "Interpolate", "pad": "ConstantPadNd",
    "max_pool2d": "MaxPool2DWithIndices", "avg_pool2d": "AvgPool2D", "subtract": "Sub", "multiply": "Mul",
    "true_divide": "Div", "truediv": "Div", "rmul": "Mul", "radd": "Add", "iadd": "Add", "isub": "Sub",
    "imul": "Mul", "itruediv": "Div", "concat": "Cat", "concatenate": "Cat",
}  # fmt: skip


def operation_of(function: str, *, weighted: bool) -> str:
    """Return the operation, as autograd names it, of a torch function.

    Args:
        function: The function's name.
        weighted: Whether one of its arguments is a parameter: a product of matrices is then a linear map.

    Example:
        >>> operation_of("layer_norm", weighted=True), operation_of("relu_", weighted=False)
        ('NativeLayerNorm', 'Relu')
    """
    bare = function.strip("_")
    found = _OPERATIONS.get(function) or _OPERATIONS.get(bare) or "".join(part.capitalize() for part in bare.split("_"))
    return "Linear" if weighted and found == "Matmul" else found

"""What the operations of the autograd graph do to a stream: hand it on, scale it, project it, mix it, bend it.

Autograd nodes are named for the operation (`AddmmBackward0`); the number distinguishes overloads only.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache


class Effect(Enum):
    """What an operation does to the tensor that flows through it."""

    HAND_ON = "hand on"
    """Moves, reshapes, copies, casts or masks elements: a linear map with one element in for one out."""
    PART = "part"
    """Takes a part of the elements."""
    JOIN = "join"
    """Puts several tensors next to each other."""
    SCALE = "scale"
    """Multiplies, element by element."""
    ADD = "add"
    """Adds, element by element."""
    PROJECT = "project"
    """A linear map with learnt weights, or a matrix product (weights or not: the operands tell)."""
    NORM = "norm"
    """A normalisation layer."""
    RESAMPLE = "resample"
    """Interpolation to another resolution."""
    POOL = "pool"
    """Pooling over windows."""
    FOURIER = "fourier"
    """A transform along an axis: mixes without weights."""
    ATTEND = "attend"
    """A fused attention."""
    RECUR = "recur"
    """A fused recurrent layer or cell."""
    REDUCE = "reduce"
    """Sums, means, norms: many elements to one."""
    BEND = "bend"
    """Anything else that is computed element by element, or along an axis, without weights."""
    OPAQUE = "opaque"
    """Written in Python or C++ by somebody: nothing is known."""
    LEAF = "leaf"
    """The accumulator of a leaf."""


_NAMES: dict[Effect, str] = {
    Effect.HAND_ON: """
        View ReshapeAlias UnsafeView Permute Transpose T Mt MH Squeeze Unsqueeze Expand Alias Clone ToCopy
        Copy CopyBackwards Roll Flip Rot90 Contiguous NativeDropout FusedDropout Repeat RepeatInterleave
        Tile ConstantPadNd ReflectionPad1D ReflectionPad2D ReflectionPad3D ReplicationPad1D ReplicationPad2D
        ReplicationPad3D PixelShuffle PixelUnshuffle Im2Col Col2Im Unfold UnfoldBackward MaskedFill
        MaskedScatter Where Tril Triu Lift Detach ViewAsReal ViewAsComplex ViewAsRealPhysical Real Imag Conj
        ConjPhysical ResolveConj Complex ChannelShuffle FakeQuantizePerTensorAffineCachemask
        FakeQuantizePerChannelAffineCachemask FakeQuantizePerTensorAffineCachemaskTensorQparams
        ToPaddedTensor NestedFromPadded NestedTensorFromMask NestedTensorFromTensorList NestedViewFromBuffer
        NestedViewFromJagged NestedGetValues WeightInterface AsStrided ToDense ToSparse ToMkldnn
        DropoutState MoveAxis AliasCopy ViewCopy FusedMovingAvgObsFqHelper Lift Fresh""",
    Effect.PART: """
        Slice Select Split SplitWithSizes Unbind Chunk TensorSplit Narrow Diagonal Index IndexSelect Gather
        MaskedSelect Take UnsafeSplit UnsafeSplitWithSizes UnsafeChunk UnbindNested Topk Sort CenterCrop""",
    Effect.JOIN: """
        Cat Stack CopySlices IndexPut IndexPutImpl Scatter SliceScatter SelectScatter IndexCopy BlockDiag
        IndexFill MaskedScatter Put""",
    Effect.SCALE: "Mul Div Neg Rsub",
    Effect.ADD: "Add Sub Addcmul Addcdiv Lerp IndexAdd ScatterAdd ScatterReduce",
    Effect.PROJECT: """
        Convolution MkldnnConvolution CudnnConvolution CudnnConvolutionTranspose SlowConv2D
        SlowConvDilated2D ConvDepthwise2D ConvDepthwise3D ThnnConvDepthwise2D SlowConvTranspose2D
        ConvolutionOverrideable Addmm Mm Bmm Baddbmm Addbmm Addmv Mv Dot Linear MkldnnLinear Addr Embedding
        EmbeddingBag Trilinear Einsum GroupedMm ScaledMm ScaledGroupedMm Bilinear IntMm SparseAddmm
        NestedLinear Matmul DeformConv2D AddmmActivation CudnnConvolutionRelu""",
    Effect.NORM: """
        NativeBatchNorm CudnnBatchNorm MiopenBatchNorm NativeLayerNorm NativeGroupNorm FusedRmsNorm RmsNorm
        LayerNorm GroupNorm BatchNorm InstanceNorm NestedLayerNorm SyncBatchNorm BatchNormImpl
        BatchNormWithUpdate LocalResponseNorm""",
    Effect.RESAMPLE: """
        UpsampleNearest1D UpsampleNearest2D UpsampleNearest3D UpsampleNearestExact1D UpsampleNearestExact2D
        UpsampleNearestExact3D UpsampleBilinear2D UpsampleBicubic2D UpsampleLinear1D UpsampleTrilinear3D
        UpsampleBilinear2DAa UpsampleBicubic2DAa UpsampleBilinear UpsampleBicubic UpsampleNearest
        GridSampler2D GridSampler3D CudnnGridSampler Interpolate""",
    Effect.POOL: """
        AvgPool1D AvgPool2D AvgPool3D MaxPool2DWithIndices MaxPool3DWithIndices AdaptiveAvgPool1D
        AdaptiveAvgPool2D AdaptiveAvgPool3D AdaptiveMaxPool2D AdaptiveMaxPool3D MkldnnMaxPool2D
        MkldnnAdaptiveAvgPool2D FractionalMaxPool2D MaxUnpool2D MaxUnpool3D MkldnnMaxPool3D MaxPool2D
        RoiAlign RoiPool LpPool""",
    Effect.FOURIER: "FftC2C FftR2C FftC2R FftR2R FftFft2 FftRfft FftIrfft Stft Istft FftFft",
    Effect.ATTEND: """
        ScaledDotProductFlashAttention ScaledDotProductFlashAttentionForCpu
        ScaledDotProductEfficientAttention ScaledDotProductCudnnAttention
        ScaledDotProductFusedAttentionOverrideable ScaledDotProductAttention ScaledDotProductAttentionMath
        FlashAttentionForward EfficientAttentionForward NativeMultiHeadAttention FlexAttention
        CudnnAttentionForward MultiHeadAttentionForward""",
    Effect.RECUR: """
        MkldnnRnnLayer CudnnRnn MiopenRnn ThnnFusedLstmCell ThnnFusedGruCell LstmMps Lstm Gru RnnTanh
        RnnRelu RnnTanhCell RnnReluCell LstmCell GruCell""",
    Effect.REDUCE: """
        Sum Mean Prod Max Min Amax Amin Norm LinalgVectorNorm Var Std VarMean StdMean Logsumexp Cumsum
        Cumprod Logcumsumexp Median Mode Trace Aminmax Cummax Cummin Nansum Nanmean""",
    Effect.OPAQUE: "DifferentiableGraph",
    Effect.LEAF: "AccumulateGrad",
}
CHECKPOINT = "CheckpointFunction"
"""The autograd function of re-entrant activation checkpointing."""

_EFFECTS = {name: effect for effect, names in _NAMES.items() for name in names.split()}
_TAIL = re.compile(r"Backward(Automatic)?\d*$")
_NUMBER = re.compile(r"\d+$")

@lru_cache(maxsize=4096)
def operation(node_name: str) -> str:
    """Return the operation of an autograd node: "Addmm" of "AddmmBackward0"."""
    short = node_name.rsplit("::", 1)[-1]
    return _TAIL.sub("", short) or short


@lru_cache(maxsize=4096)
def effect_of(name: str) -> Effect:
    """Return what an operation (without "Backward0") does; BEND for elementwise ones that are not listed.

    Example:
        >>> effect_of("Addmm"), effect_of("Gelu")
        (<Effect.PROJECT: 'project'>, <Effect.BEND: 'bend'>)
    """
    found = _EFFECTS.get(name)
    return found if found is not None else Effect.BEND

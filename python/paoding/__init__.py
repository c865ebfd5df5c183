# SPDX-License-Identifier: Apache-2.0
"""paoding: graphs of values, compiled for CPUs and NVIDIA GPUs.

import paoding as pd

with pd.Graph() as graph:
    x, y = graph.input("x", pd.f32, (64, 784)), graph.input("y", pd.i64, 64)
    logits = pd.nn.Linear("out", 784, 10)(x)
    loss = pd.cross_entropy(logits, y)
    pd.minimize(loss, pd.Adam(1e-3))
    graph.fetch("loss", loss)
program = pd.Program(graph, pd.Parameters(graph, seed=7))
program(x=images, y=labels)["loss"].item()
"""

from . import _loading  # before _paoding
from . import (
    _copies,
    control,
    ctc,
    data,
    debugging,
    distributed,
    errors,
    fitting,
    functions,
    gradient_check,
    metrics,
    nn,
    numpy_names,
    ops,
    own_ops,
    profiling,
    programs,
    streaming,
)
from ._paoding import (
    Adafactor,
    Adam,
    AdamW,
    Buckets,
    Checkpoint,
    CheckpointFolder,
    Communicator,
    DeviceTensor,
    DType,
    Extents,
    Graph,
    GraphText,
    Initializer,
    Lamb,
    LearningRate,
    Lion,
    LossScale,
    Manifest,
    Model,
    Optimizer,
    ParameterGroup,
    ParameterInfo,
    ParameterRole,
    Parameters,
    ProfileRange,
    Profiler,
    Program,
    RmsProp,
    Scalar,
    Sgd,
    Tensor,
    TrainingStep,
    Value,
    __version__,
    arange,
    averages_of,
    avg_pool2d,
    batch_norm,
    bucket_sizes,
    buckets_by,
    call,
    categorical,
    causal_mask,
    constant,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose2d,
    cosine_decay,
    cross_entropy,
    dropout,
    full,
    global_avg_pool,
    group_norm,
    inverse_square_root,
    iota,
    layer_norm,
    linear_warmup,
    load_checkpoint,
    load_safetensors,
    max_pool2d,
    minimize,
    multiples_of,
    multiplicative_attention,
    ones,
    powers_of_two,
    print_value,
    random_bernoulli,
    random_normal,
    random_uniform,
    restore,
    rms_norm,
    save_safetensors,
    scaled_dot_product_attention,
    scatter_add,
    step_decay,
    values_of,
    zeros,
)
from .control import *
from .ctc import *
from .debugging import *
from .errors import (
    ArgumentError,
    CancelledError,
    DeviceError,
    DtypeError,
    Error,
    FileError,
    NotFoundError,
    ShapeError,
    UnsupportedError,
)
from .fitting import *
from .functions import *
from .gradient_check import *
from .ops import *
from .numpy_names import *  # after ops, some of which it takes the names of
from .own_ops import *
from .profiling import *
from .programs import Function, Programs, TracedFunction, function
from .serving import save_model
from .streaming import *

f64, f32, f16, bf16 = DType.f64, DType.f32, DType.f16, DType.bf16
i64, i32, u8, bool_ = DType.i64, DType.i32, DType.u8, DType.bool

__all__ = [
    '__version__',
    'Adafactor',
    'Adam',
    'AdamW',
    'arange',
    'ArgumentError',
    'averages_of',
    'avg_pool2d',
    'batch_norm',
    'bf16',
    'bool_',
    'bucket_sizes',
    'Buckets',
    'buckets_by',
    'call',
    'CancelledError',
    'categorical',
    'causal_mask',
    'Checkpoint',
    'CheckpointFolder',
    'Communicator',
    'constant',
    'conv1d',
    'conv2d',
    'conv3d',
    'conv_transpose2d',
    'cosine_decay',
    'cross_entropy',
    'data',
    'DeviceError',
    'DeviceTensor',
    'dropout',
    'DType',
    'DtypeError',
    'Error',
    'errors',
    'Extents',
    'f16',
    'f32',
    'f64',
    'FileError',
    'full',
    'Function',
    'function',
    'global_avg_pool',
    'Graph',
    'GraphText',
    'group_norm',
    'i32',
    'i64',
    'Initializer',
    'inverse_square_root',
    'iota',
    'Lamb',
    'layer_norm',
    'LearningRate',
    'linear_warmup',
    'Lion',
    'load_checkpoint',
    'load_safetensors',
    'LossScale',
    'Manifest',
    'max_pool2d',
    'metrics',
    'minimize',
    'Model',
    'multiples_of',
    'multiplicative_attention',
    'nn',
    'NotFoundError',
    'ones',
    'ops',
    'Optimizer',
    'ParameterGroup',
    'ParameterInfo',
    'ParameterRole',
    'Parameters',
    'powers_of_two',
    'print_value',
    'Profiler',
    'ProfileRange',
    'Program',
    'Programs',
    'random_bernoulli',
    'random_normal',
    'random_uniform',
    'restore',
    'rms_norm',
    'RmsProp',
    'save_model',
    'save_safetensors',
    'Scalar',
    'scaled_dot_product_attention',
    'scatter_add',
    'Sgd',
    'ShapeError',
    'step_decay',
    'Tensor',
    'TracedFunction',
    'TrainingStep',
    'u8',
    'UnsupportedError',
    'Value',
    'values_of',
    'zeros',
]
__all__ += control.__all__
__all__ += ctc.__all__
__all__ += debugging.__all__
__all__ += fitting.__all__
__all__ += functions.__all__
__all__ += gradient_check.__all__
__all__ += numpy_names.__all__
__all__ += ops.__all__
__all__ += own_ops.__all__
__all__ += profiling.__all__
__all__ += streaming.__all__

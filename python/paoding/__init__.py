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
from . import control, errors, nn, numpy_names, ops
from ._paoding import (
    Adam,
    AdamW,
    Checkpoint,
    CheckpointFolder,
    DType,
    Graph,
    Initializer,
    LearningRate,
    LossScale,
    Manifest,
    Optimizer,
    Parameters,
    ProfileRange,
    Profiler,
    Program,
    Sgd,
    Tensor,
    TrainingStep,
    Value,
    __version__,
    arange,
    avg_pool2d,
    batch_norm,
    call,
    causal_mask,
    constant,
    conv1d,
    conv2d,
    cosine_decay,
    cross_entropy,
    dropout,
    full,
    global_avg_pool,
    inverse_square_root,
    iota,
    layer_norm,
    linear_warmup,
    load_checkpoint,
    load_safetensors,
    max_pool2d,
    minimize,
    multiplicative_attention,
    ones,
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
    zeros,
)
from .control import *
from .errors import (
    ArgumentError,
    CancelledError,
    DeviceError,
    DtypeError,
    Error,
    FileError,
    ShapeError,
    UnsupportedError,
)
from .numpy_names import *
from .ops import *

f64, f32, f16, bf16 = DType.f64, DType.f32, DType.f16, DType.bf16
i64, i32, u8, bool_ = DType.i64, DType.i32, DType.u8, DType.bool

__all__ = [
    '__version__',
    'Adam',
    'AdamW',
    'arange',
    'ArgumentError',
    'avg_pool2d',
    'batch_norm',
    'bf16',
    'bool_',
    'call',
    'CancelledError',
    'causal_mask',
    'Checkpoint',
    'CheckpointFolder',
    'constant',
    'conv1d',
    'conv2d',
    'cosine_decay',
    'cross_entropy',
    'DeviceError',
    'dropout',
    'DType',
    'DtypeError',
    'Error',
    'errors',
    'f16',
    'f32',
    'f64',
    'FileError',
    'full',
    'global_avg_pool',
    'Graph',
    'i32',
    'i64',
    'Initializer',
    'inverse_square_root',
    'iota',
    'layer_norm',
    'LearningRate',
    'linear_warmup',
    'load_checkpoint',
    'load_safetensors',
    'LossScale',
    'Manifest',
    'max_pool2d',
    'minimize',
    'multiplicative_attention',
    'nn',
    'ones',
    'ops',
    'Optimizer',
    'Parameters',
    'print_value',
    'Profiler',
    'ProfileRange',
    'Program',
    'random_bernoulli',
    'random_normal',
    'random_uniform',
    'restore',
    'rms_norm',
    'save_safetensors',
    'scaled_dot_product_attention',
    'scatter_add',
    'Sgd',
    'ShapeError',
    'step_decay',
    'Tensor',
    'TrainingStep',
    'u8',
    'UnsupportedError',
    'Value',
    'zeros',
]
__all__ += control.__all__
__all__ += numpy_names.__all__
__all__ += ops.__all__

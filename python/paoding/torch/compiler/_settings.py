# SPDX-License-Identifier: Apache-2.0
"""What torch.compile's `options` and `mode` say, and how AOTAutograd is asked for graphs."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from ...errors import ArgumentError
from . import _fused_cells

_MODES = (None, 'default', 'reduce-overhead', 'max-autotune', 'max-autotune-no-cudagraphs')


@dataclasses.dataclass(frozen=True)
class Settings:
    """`strict`: an op that paoding has not is an error. `min_nodes`: regions with fewer ops that compute, none of them a
    product or convolution, stay PyTorch's. `max_regions`: of one graph, the largest. `uses_graph`: on a GPU a call whose
    tensors lie where an earlier call's lay is one launch of a CUDA graph."""

    strict: bool = False
    min_nodes: int = 5
    max_regions: int = 8
    uses_graph: bool = True

    @staticmethod
    def of(options: dict[str, Any] | None, mode: str | None) -> Settings:
        if mode not in _MODES:
            raise ArgumentError(f"torch.compile(mode='{mode}'): paoding knows {', '.join(map(repr, _MODES[1:]))}")
        given = dict(options or {})
        if mode == 'max-autotune-no-cudagraphs':
            given.setdefault('uses_graph', False)
        fields = {each.name: type(each.default) for each in dataclasses.fields(Settings)}
        for name, value in given.items():
            if name not in fields:
                raise ArgumentError(f"torch.compile(options=..): there is no option '{name}'; {', '.join(fields)} are")
            if type(value) is not fields[name]:
                raise ArgumentError(
                    f"torch.compile(options=..): '{name}' is {value!r}, needed is a {fields[name].__name__}"
                )
        return Settings(**given)


# Ops that paoding has as they are, or that stay PyTorch's kernels where it has not: in pieces they would be many nodes.
_WHOLE = """
    _log_softmax_backward_data _softmax_backward_data native_layer_norm_backward native_batch_norm_backward
    native_group_norm_backward nll_loss_forward nll_loss_backward embedding_dense_backward silu silu_backward
    hardswish hardswish_backward hardsigmoid hardsigmoid_backward mish mish_backward softplus softplus_backward
    gelu_backward tanh_backward sigmoid_backward threshold_backward leaky_relu_backward elu_backward hardtanh_backward
    _scaled_dot_product_flash_attention_for_cpu index_add baddbmm roll _unsafe_index stack select_scatter
"""


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    from torch._decomp import core_aten_decompositions

    whole = set(_WHOLE.split())
    taken = {
        op: decompose
        for op, decompose in core_aten_decompositions().items()
        if not (isinstance(op, torch._ops.OpOverload) and op.namespace == 'aten' and op._opname in whole)
    }
    return {**taken, **_fused_cells.decompositions()}


def by_aot(forward: Any, backward: Any, inference: Any, split: Any) -> Callable[..., Any]:
    """A compiler of Dynamo's graphs that hands those of AOTAutograd to these three. `split`, of a graph of both directions and
    the number of the forward one's results, makes the two, or leaves that to PyTorch."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import aot_module_simplified
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    def partition(joint: Any, joint_inputs: Any, *, num_fwd_outputs: int, **more: Any) -> Any:
        made = split(joint, num_fwd_outputs)
        if made is not None:
            return made
        return min_cut_rematerialization_partition(joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **more)

    known = inspect.signature(aot_module_simplified).parameters
    wanted = {
        'fw_compiler': forward,
        'bw_compiler': backward,
        'inference_compiler': inference,
        'partition_fn': partition,
        'decompositions': decompositions(),
        'keep_inference_input_mutations': True,
    }
    made: Callable[..., Any] = aot_autograd(**{name: value for name, value in wanted.items() if name in known})
    return made

# SPDX-License-Identifier: Apache-2.0
"""pickle, copy.copy and copy.deepcopy of tensors, stores, graphs and programs. A program is compiled anew; what shares a
store shares its copy."""

from __future__ import annotations

import copyreg
from typing import Any, TypeAlias

from ._paoding import (
    Graph,
    ParameterRole,
    Parameters,
    ParameterValue,
    Program,
    Tensor,
    bits_of,
    facts_of,
    graph_of,
    tensor_of_bits,
)
from .errors import ArgumentError

Entry: TypeAlias = tuple[str, Tensor, ParameterRole]


def _tensor_of(bits: Any, dtype: str, shape: tuple[int, ...]) -> Tensor:
    return tensor_of_bits(bits, dtype, shape)


def _reduce_tensor(tensor: Tensor) -> tuple[Any, ...]:
    return _tensor_of, (bits_of(tensor).numpy(), tensor.dtype.name, tensor.shape)


def _parameters_of(device: str, entries: list[Entry]) -> Parameters:
    graph = Graph()
    for name, value, role in entries:
        graph.parameter(name, value.dtype, value.shape, initial=value, role=role)
    return Parameters(graph, device=device)


def _reduce_parameters(parameters: Parameters) -> tuple[Any, ...]:
    roles = {info.name: info.role for info in parameters.list()}
    return _parameters_of, (parameters.device, [(name, value, roles[name]) for name, value in parameters.items()])


def _graph_of(text: str, roles: dict[str, ParameterRole], initialized: list[str], streams: dict[str, int]) -> Graph:
    return graph_of(text, roles, initialized, streams)


def _reduce_graph(graph: Graph) -> tuple[Any, ...]:
    return _graph_of, (str(graph), *facts_of(graph))


def _program_of(graph: Graph, parameters: Parameters | None, options: dict[str, Any]) -> Program:
    return Program(graph, parameters, **options)


def _reduce_program(program: Program) -> tuple[Any, ...]:
    if program.options['stream'] != 0:
        raise ArgumentError(
            'a Program in a CUDA stream of yours is not copied, since it is not known which stream the copy is to use\n'
            'hint: copy its graph and parameters, and make a Program of them'
        )
    return _program_of, (program.graph, program.parameters, program.options)


copyreg.pickle(Tensor, _reduce_tensor)
copyreg.pickle(ParameterValue, _reduce_tensor)
copyreg.pickle(Parameters, _reduce_parameters)
copyreg.pickle(Graph, _reduce_graph)
copyreg.pickle(Program, _reduce_program)

# SPDX-License-Identifier: Apache-2.0
"""A program that torch.export traced, as paoding graphs: one at any sizes of its named extents."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from ..._paoding import Graph
from ...errors import ArgumentError, Error, UnsupportedError
from . import _all_ops as _all_ops  # fills the table
from ._convert import converted, is_size, tensors_of, value_of
from ._explain import Left, line_of, scope_of
from ._named_sizes import NamedSizes
from ._region import evaluated
from ._sized_text import NotExpressible, written
from ._table import Making, NotTaken, dtype_of, name_of

_CPU = torch.device('cpu')
# Ops that check sizes are left out: torch.export checked them when it traced the model, and extents have bounds.
_CHECKS = frozenset(
    '_assert_scalar _assert_async _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size'.split()
)


def _is_check(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._opname in _CHECKS


class TracedProgram:
    """`parameters`: values by name, of those that the graph reads; `results`: names of what it gives."""

    def __init__(self, program: Any, sizes: NamedSizes, results: Sequence[str] | None) -> None:
        sizes.meet(program)
        self.sizes = sizes
        self.parameters: dict[str, Tensor] = {}
        self._program = program
        self._graph: fx.Graph = program.graph
        self._names: dict[str, str] = {}  # of placeholders that are parameters
        self._made: dict[tuple[int, ...], str] = {}
        signature = program.graph_signature
        self._inputs = [name for name in signature.user_inputs if isinstance(name, str)]
        self._check_writes(signature)
        self._find_parameters(signature)
        self._outputs = self._find_outputs(signature)
        self.results = self._named(results)
        self.ops = sum(1 for node in self._graph.nodes if node.op == 'call_function' and not is_size(node))

    # ---- what the program has ----

    def _check_writes(self, signature: Any) -> None:
        written_to = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
        if written_to:
            raise UnsupportedError(
                f"export: a call of the model writes to '{written_to[0]}'; a file's runs keep nothing: give it back as a result"
            )

    def _find_parameters(self, signature: Any) -> None:
        """Tied weights are one parameter, by the name that comes first."""
        sources = {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
        self._sources = sources
        held = {**self._program.constants, **self._program.state_dict}
        names: dict[Any, str] = {}
        for name, value in self._program.state_dict.items():
            names.setdefault(_place(name, value), name)
        for node in self._graph.nodes:
            if node.op == 'placeholder' and node.name in sources and node.users:
                value = held[sources[node.name]]
                name = names.setdefault(_place(sources[node.name], value), sources[node.name])
                self._names[node.name] = name
                self.parameters[name] = value.detach().cpu().contiguous()

    def _find_outputs(self, signature: Any) -> list[fx.Node]:
        by_name = {node.name: node for node in self._graph.nodes}
        made = []
        for name in signature.user_outputs:
            node = by_name.get(name) if isinstance(name, str) else None
            if node is not None and tensors_of(value_of(node)):
                made.append(node)
        if not made:
            raise UnsupportedError('export: the model gives no tensor')
        return made

    def _named(self, given: Sequence[str] | None) -> list[str]:
        """The user's names, the keys of a dict, or result, result1 .."""
        if given is not None:
            if len(given) != len(self._outputs) or len(set(given)) != len(given):
                raise ArgumentError(f'export: results is {list(given)}, needed are {len(self._outputs)} names, all different')
            return list(given)
        spec = self._program.call_spec.out_spec
        paths = [] if spec is None else _paths(spec)
        if len(paths) == len(self._outputs) and all(paths) and len(set(paths)) == len(paths):
            return paths
        return ['result' if i == 0 else f'result{i}' for i in range(len(self._outputs))]

    # ---- graphs ----

    def text_at(self, sizes: Mapping[str, int]) -> str:
        key = tuple(sizes.values())
        if key not in self._made:
            self._made[key] = str(self.graph_at(self.sizes.of_symbols(sizes))[0])
        return self._made[key]

    def graph_at(self, symbols: dict[Any, Any]) -> tuple[Graph, dict[fx.Node, Any]]:
        """The graph, and the values of the program's nodes in it."""
        made = Graph()
        making = Making(made)
        making.device = _CPU
        values: dict[fx.Node, Any] = {}
        left: list[Left] = []

        def extents(tensor: Tensor) -> list[int]:
            return [evaluated(each, symbols) for each in tensor.shape]

        with made:
            for node in self._graph.nodes:
                try:
                    if node.op == 'placeholder':
                        values[node] = self._outside(made, node, extents)
                    elif node.op == 'call_function' and not _is_check(node):
                        self._add(making, node, values, extents, symbols)
                except (NotTaken, Error, TypeError, ValueError, IndexError, AssertionError, AttributeError, KeyError) as refusal:
                    if any(source in values and values[source] is None for source in node.all_input_nodes):
                        values[node] = None  # what it is made of is in the list
                        continue
                    left.append(Left(str(node.target), _first_line(refusal), line_of(node)))
                    values[node] = None
            if making.has_seed:
                left.append(Left('random numbers', 'every run would draw the same', ''))
            if left:
                raise UnsupportedError('export: these ops are not paoding\'s\n' + '\n'.join(f'  {each}' for each in dict.fromkeys(left)))
            for name, node in zip(self.results, self._outputs):
                made.fetch(name, values[node])
        return made, values

    def _outside(self, made: Graph, node: fx.Node, extents: Any) -> Any:
        promised = value_of(node)
        name = self._names.get(node.name)
        if name is not None:
            return made.parameter(name, dtype_of(promised.dtype), tuple(extents(promised)))
        if isinstance(promised, Tensor) and node.name in self._inputs:
            return made.input(node.name, dtype_of(promised.dtype), tuple(extents(promised)))
        if node.users and node.name in self._inputs:
            raise NotTaken('an input that is no tensor')
        return None

    def _add(self, making: Making, node: fx.Node, values: dict[fx.Node, Any], extents: Any, symbols: dict[Any, Any]) -> None:
        if is_size(node):
            promised = value_of(node)
            values[node] = evaluated(promised, symbols) if isinstance(promised, (int, torch.SymInt)) else promised
            return
        if node.target is not operator.getitem:
            for each in node.all_input_nodes:
                if each.op == 'get_attr' and each not in values:
                    raise NotTaken('a function as an operand')
        with making.graph.scope(scope_of(node)):
            values[node] = converted(making, node, values, extents)

    # ---- what is said of it ----

    def expressions(self) -> list[Any]:
        """Symbolic sizes that occur, of names in place of the program's symbols."""
        made: set[Any] = set()
        for node in self._graph.nodes:
            promised = value_of(node)
            found = [promised] if isinstance(promised, torch.SymInt) else []
            for tensor in tensors_of(promised):
                found += [each for each in (*tensor.shape, *tensor.stride()) if isinstance(each, torch.SymInt)]
            made.update(renamed for each in found if (renamed := self.sizes.renamed(each.node.expr)) is not None)
        return list(made)

    def inputs_text(self) -> dict[str, str]:
        made = {}
        for node in self._graph.nodes:
            promised = value_of(node)
            if node.op == 'placeholder' and node.name in self._inputs and isinstance(promised, Tensor):
                made[node.name] = f'{name_of(dtype_of(promised.dtype))}[{",".join(map(self._size_text, promised.shape))}]'
        return made

    def _size_text(self, size: Any) -> str:
        if not isinstance(size, torch.SymInt):
            return str(size)
        renamed = self.sizes.renamed(size.node.expr)
        try:
            return str(size) if renamed is None else written(renamed)
        except NotExpressible:
            return str(size)

    def feeds(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The tensors of a call, by the names of the graph's inputs."""
        wanted = self.inputs_text()
        given = self._given(args, kwargs)
        return {name: each.detach().cpu().contiguous() for name, each in given.items() if name in wanted}

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Tensor]:
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        names = self._program.graph_signature.user_inputs
        return {name: each for name, each in zip(names, leaves) if isinstance(each, Tensor)}

    def module_and_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[fx.GraphModule, list[Any]]:
        """The program as a module, whose nodes are those of graph_at(), and what its placeholders are in a call."""
        given = self._given(args, kwargs)
        held = {**self._program.constants, **self._program.state_dict}
        inputs = [
            held[self._sources[node.name]] if node.name in self._sources else given.get(node.name)
            for node in self._graph.nodes
            if node.op == 'placeholder'
        ]
        return self._program.graph_module, inputs


def _place(name: str, value: Tensor) -> Any:
    return (value.data_ptr(), value.dtype, value.shape, value.stride()) if value.numel() else name


def _first_line(mistake: Exception) -> str:
    text = str(mistake).splitlines()[0] if str(mistake) else ''
    return text if isinstance(mistake, (NotTaken, Error)) else f'{type(mistake).__name__}: {text}'


def _paths(spec: Any) -> list[str]:
    """Of every leaf of an output the keys that lead to it: 'logits', 'states_0'."""
    tree = torch.utils._pytree.tree_unflatten(range(spec.num_leaves), spec)
    pairs, _ = torch.utils._pytree.tree_flatten_with_path(tree)
    made = []
    for path, _leaf in pairs:
        parts = [str(getattr(key, 'key', getattr(key, 'name', getattr(key, 'idx', '')))) for key in path]
        made.append('_'.join(parts) if parts and not parts[0].isdigit() else '')
    return made

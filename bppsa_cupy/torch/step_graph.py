"""A step of a recurrence, written in PyTorch, as a `bp.Cell` and what is computed before its pass."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import accumulate, permutations
from typing import Any

import sympy
import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from bppsa_cupy.cells import Cell, sigmoid
from bppsa_cupy.errors import CellError
from bppsa_cupy.torch.checks import NoKernelError

#: Nodes, each with the number of a block of H columns.
Terms = tuple[tuple[Node, int], ...]


class _OperandFirst(Cell):
    """A cell whose first state is the operand of the products; the output is the second state."""

    output = 1


def _clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else sympy.Max(x, low)
    return x if high is None else sympy.Min(x, high)


#: PyTorch's elementwise operators on SymPy expressions.
ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, alpha=1: a + alpha * b,
    "sub": lambda a, b, alpha=1: a - alpha * b,
    "rsub": lambda a, b, alpha=1: b - alpha * a,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "reciprocal": lambda a: 1 / a,
    "pow": operator.pow,
    "square": lambda a: a**2,
    "tanh": sympy.tanh,
    "sigmoid": sigmoid,
    "relu": lambda a: sympy.Max(a, 0),
    "silu": lambda a: a * sigmoid(a),
    "exp": sympy.exp,
    "log": sympy.log,
    "sqrt": sympy.sqrt,
    "sin": sympy.sin,
    "cos": sympy.cos,
    "abs": sympy.Abs,
    "maximum": sympy.Max,
    "minimum": sympy.Min,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "hardtanh": lambda a, low=-1, high=1: _clamp(a, low, high),
    "clone": lambda a, memory_format=None: a,
    "alias": lambda a: a,
    "lift_fresh_copy": lambda a: a,
}


#: Operators that read only shapes and dtypes.
SHAPE_ONLY = "empty_like zeros_like ones_like full_like new_zeros new_ones new_empty".split()


class StepGraph:
    """A step's operators, sorted by what they follow from.

    Those of parameters alone are computed once a call, those of inputs alone over all steps at once, and
    random numbers before the pass, in the loop's order. What follows from a state is the cell.

    `function` returns a tuple of the new states for (parameters, x, *states, *extras).
    Raises NoKernelError with the operator that a kernel does not have.

    Attributes
    ----------
    cell : Cell
        The cell of the step. Each of its gates is a sum of terms.
    gates : list
        The terms of each gate: nodes and their columns.
    products : list
        Nodes of parameters (H, k H), whose columns are the rows of W_hh.
    biases : list
        A node of parameters for each product, or None.
    states : int
        The number of states of the step.
    operand : Node
        The node that the weights multiply, a function of the states. If it is not the first state, the cell
        has this operand as an additional first state.
    """

    def __init__(
        self, function: Callable[..., Any], parameters: Any, x: Any, rest: Sequence[Any], count: int
    ) -> None:
        self.module: GraphModule = make_fx(function)(parameters, x, *rest)
        self.graph: Graph = self.module.graph
        _split_products(self.graph)
        self.graph.eliminate_dead_code()
        self.states = count
        nodes = list(self.graph.nodes)
        places = [node for node in nodes if node.op == "placeholder"]
        shown = len(places) - 1 - len(rest)
        self.parameter_nodes, inputs = places[:shown], places[shown:]
        self.x, self.before, self.extras = inputs[0], inputs[1 : 1 + count], inputs[1 + count :]
        self.hidden, self.batch = rest[0].shape[1], rest[0].shape[0]
        self._by_state: set[Node] = set(self.before)
        self._by_input: set[Node] = {self.x, *self.extras}
        self.random: list[Node] = []
        for node in nodes:
            sources = set(node.all_input_nodes)
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                self.random.append(node)
                self._by_input.add(node)
            elif node.op == "call_function" and sources & self._by_state:
                if _name(node) not in SHAPE_ONLY:
                    self._by_state.add(node)
            elif node.op == "call_function" and sources & self._by_input:
                self._by_input.add(node)
        (self.results,) = nodes[-1].args
        self.gates: list[Terms] = []
        self._unit: list[Terms] = []
        self._sums = 0
        self.operand: Node | None = None
        self._multiplied: Any = None
        self.products: list[Node] = []
        self.biases: list[Node | None] = []
        self.cell = self._made_cell()

    # ---- the cell ----

    def _made_cell(self) -> Cell:
        H = self.hidden
        shapes = [tuple(_shape(node)) for node in self.before]
        if set(shapes) != {(self.batch, H)}:
            raise NoKernelError(f"the states have the shapes {shapes}, but must have equal shapes")
        for result in self.results:
            if result not in self._by_state or tuple(_shape(result)) != (self.batch, H):
                raise NoKernelError(
                    "a new state does not depend on the previous states, or has another shape than they have"
                )
        known: dict[Node, list[Any]] = {node: [_symbol("s", place)] for place, node in enumerate(self.before)}
        for node in self.graph.nodes:
            if node in self._by_state and node not in known:
                known[node] = self._expressions(node, known)
        after = [sympy.sympify(known[result][0]) for result in self.results]
        if not self.products:
            raise NoKernelError("the step has no product of a state with a weight")
        kind, states = Cell, [f"s{place}" for place in range(self.states)]
        self.has_operand = bool(self._multiplied != _symbol("s", 0))
        if self.has_operand:
            new = dict(zip((_symbol("s", place) for place in range(self.states)), after, strict=True))
            kind, states, after = _OperandFirst, ["r", *states], [self._multiplied.xreplace(new), *after]
        formulas = self._merged(after)
        gates = [f"x{place}" for place in range(len(self.gates))]
        try:
            return kind(
                "traced_step",
                gates=gates,
                states=states,
                parameters=[f"p{place}" for place in range(len(self._unit))],
                recurrent=gates[: self._sums],
                step=lambda *_: formulas,
            )
        except CellError as error:
            raise NoKernelError(str(error)) from error

    def _merged(self, after: Sequence[Any]) -> list[Any]:
        """These formulas with a single gate for each sum of inputs and parameters."""
        read = set().union(*(formula.free_symbols for formula in after))
        terms = {_symbol("x", place): gate for place, gate in enumerate(self.gates)}
        terms |= {_symbol("p", place): unit for place, unit in enumerate(self._unit)}
        terms = {symbol: sum_of for symbol, sum_of in terms.items() if symbol in read}
        for total, part in permutations(list(terms), 2):
            if total.name[0] == "x" and total in terms and part in terms:
                by_total = [formula.xreplace({total: total - part}) for formula in after]
                if all(part not in formula.free_symbols for formula in by_total):
                    after, terms[total] = by_total, terms[total] + terms.pop(part)
        new: dict[Any, Any] = {}
        for letter in "xp":
            symbols = [symbol for symbol in terms if symbol.name[0] == letter]
            new |= {symbol: _symbol(letter, place) for place, symbol in enumerate(symbols)}
        self.gates = [sum_of for symbol, sum_of in terms.items() if symbol.name[0] == "x"]
        self._unit = [sum_of for symbol, sum_of in terms.items() if symbol.name[0] == "p"]
        self.gates += [()] * (self._sums - len(self.gates))
        return [formula.xreplace(new) for formula in after]

    def _expressions(self, node: Any, known: dict[Node, list[Any]]) -> list[Any]:
        """The value of a node, an expression for each block of H columns; a list of them for several."""
        name = _name(node)
        if name == "getitem":
            return known[node.args[0]][node.args[1]]
        if name in ("mm", "addmm"):
            return self._product(node, name, known)
        if name in ("split", "unsafe_split", "split_with_sizes", "chunk", "slice"):
            return self._columns(node, name, known)
        formula = ELEMENTWISE.get(name)
        if (
            name in ("view", "expand", "_to_copy")
            and _shape(node) == _shape(node.args[0])
            and (node.meta["val"].dtype == node.args[0].meta["val"].dtype)
        ):
            return known[node.args[0]]
        if formula is None:
            raise NoKernelError(f"the step calls {name}, which kernels do not support")
        shape = _shape(node)
        if len(shape) != 2 or shape[0] != self.batch or shape[1] % self.hidden:
            raise NoKernelError(
                f"{name} in the step returns shape {tuple(shape)}, but kernels support only "
                f"(B, k * {self.hidden})"
            )
        blocks = shape[1] // self.hidden
        arguments = [self._operand(argument, blocks, known) for argument in node.args]
        options = {key: value for key, value in node.kwargs.items() if value is not None}
        if name == "div" and options:
            given = ", ".join(f"{key}={value!r}" for key, value in options.items())
            raise NoKernelError(f"the step calls div with {given}, which kernels do not support")
        return [formula(*(one[block] for one in arguments), **options) for block in range(blocks)]

    def _operand(self, value: Any, blocks: int, known: dict[Node, list[Any]]) -> list[Any]:
        """An argument of an elementwise operator, an expression for each block."""
        if not isinstance(value, Node):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise NoKernelError(f"the step uses the argument {value!r}, which kernels do not support")
            number = sympy.Integer(value) if float(value).is_integer() else sympy.Float(value, 17)
            return [number] * blocks
        if value in self._by_state:
            if len(known[value]) != blocks:
                raise NoKernelError(
                    f"the step broadcasts a state over {blocks} blocks of units, which kernels do not support"
                )
            return known[value]
        shape = _shape(value)
        varies = value in self._by_input or (len(shape) == 2 and shape[0] > 1)
        symbols = []
        for block in range(blocks):
            table, letter = (self.gates, "x") if varies else (self._unit, "p")
            terms = ((value, block),)
            if terms not in table:
                table.append(terms)
            symbols.append(_symbol(letter, table.index(terms)))
        return symbols

    def _product(self, node: Any, name: str, known: dict[Node, list[Any]]) -> list[Any]:
        """The recurrent sums of a product of a state with a weight."""
        bias, left, right = node.args if name == "addmm" else (None, *node.args)
        changing = self._by_state | self._by_input
        extra = None
        if bias is not None and (bias in changing or len(_shape(bias)) != 1):
            extra, bias = bias, None
        if node.kwargs or left not in self._by_state or right in changing:
            raise NoKernelError("the step has a matrix product of other tensors than a state and a weight")
        operand = known[left][0]
        if not self.products:
            self.operand, self._multiplied = left, operand
        of_states = all(symbol.name[0] in "sp" for symbol in operand.free_symbols)
        if len(known[left]) != 1 or operand != self._multiplied or not of_states:
            raise NoKernelError(
                "the step multiplies weights by different tensors, or by a tensor that depends on the input "
                "and the states: kernels support only products with the same function of the states"
            )
        columns = _shape(node)[1]
        if columns % self.hidden:
            raise NoKernelError(
                f"a product in the step has {columns} columns, but kernels support only multiples of "
                f"{self.hidden}"
            )
        self.products.append(right)
        self.biases.append(bias)
        blocks = columns // self.hidden
        self._sums += blocks
        sums = [_symbol("u", self._sums - blocks + block) for block in range(blocks)]
        if extra is None:
            return sums
        return [a + b for a, b in zip(self._operand(extra, blocks, known), sums, strict=True)]

    def _columns(self, node: Any, name: str, known: dict[Node, list[Any]]) -> list[Any]:
        """Blocks of columns of a value."""
        H = self.hidden
        value, *rest = node.args
        blocks = known[value]
        axis = rest[0] if name == "slice" else (rest[1] if len(rest) > 1 else 0)
        if axis not in (1, -1):
            raise NoKernelError(f"the step calls {name} along the batch axis, which kernels do not support")
        total = len(blocks) * H
        if name == "slice":
            begin, end = rest[1] or 0, min(rest[2], total)
            if begin % H or end % H or len(rest) > 3:
                raise NoKernelError(
                    f"the step slices the columns {begin}:{end}, but kernels support only multiples of {H}"
                )
            return blocks[begin // H : end // H]
        widths = rest[0] if isinstance(rest[0], (list, tuple)) else [rest[0]] * math.ceil(total / rest[0])
        if any(width % H for width in widths):
            raise NoKernelError(
                f"{name} in the step makes parts of {list(widths)} columns, but kernels support only "
                f"multiples of {H}"
            )
        ends = accumulate(width // H for width in widths)
        return [blocks[end - width // H : end] for width, end in zip(widths, ends, strict=True)]

    # ---- what is computed before a pass ----

    def _run(self, known: dict[Node, Any], wanted: Callable[[Node], bool]) -> None:
        """Compute the operators that are `wanted`, from values that are known."""
        for node in self.graph.nodes:
            if node in known or not wanted(node):
                continue
            if node.op == "get_attr":
                known[node] = getattr(self.module, str(node.target))
            elif node.op == "call_function":
                values = {n: known[n] if n in known else _zeros_like(n) for n in node.all_input_nodes}
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                known[node] = node.target(*args, **kwargs)

    def prepare(
        self,
        parameters: Sequence[torch.Tensor],
        x: torch.Tensor,
        states: Sequence[torch.Tensor],
        extras: Sequence[torch.Tensor],
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """The gates of all steps (T, B, G H), the cell's states before the first step, and W_hh, b_hh and the
        cell's own parameters."""
        H, steps = self.hidden, x.shape[0]
        constant: dict[Node, Any] = dict(zip(self.parameter_nodes, parameters, strict=True))
        changing = self._by_state | self._by_input
        self._run(constant, lambda node: node not in changing and node.op != "placeholder")
        drawn = self._draws(steps, constant)
        wanted = dict.fromkeys(node for gate in self.gates for node, _ in gate)
        inner = [node for node in wanted if node in self._by_input]

        def over_step(*values: torch.Tensor) -> list[torch.Tensor]:
            known = {**constant, **dict(zip((self.x, *self.extras, *self.random), values, strict=True))}
            self._run(known, lambda node: node in self._by_input)
            return [known[node] for node in inner]

        by_step = dict(zip(inner, torch.vmap(over_step)(x, *extras, *drawn), strict=True))
        gates, place = [], 0
        while place < len(self.gates):
            gate, count = self.gates[place], 1
            # Neighbours of one node stay one tensor: each cut and each copy is as large as the gates.
            while self.gates[place + count : place + count + 1] == [tuple((n, b + count) for n, b in gate)]:
                count += 1
            terms = [] if gate else [x.new_zeros(steps, self.batch, count * H)]
            for node, block in gate:
                value = by_step[node] if node in by_step else constant[node].expand(steps, *_shape(node))
                terms.append(_spread(value, len(_shape(node)), self.batch, H, block, count))
            gates.append(reduce(torch.add, terms))
            place += count
        weights = [constant[node].T for node in self.products]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        biases = [
            weight.new_zeros(len(rows)) if bias is None else constant[bias].expand(len(rows))
            for rows, bias in zip(weights, self.biases, strict=True)
        ]
        unit = [
            _spread(constant[node][None], len(_shape(node)), 1, H, block, 1)[0, 0]
            for ((node, block),) in self._unit
        ]
        initial = list(states)
        if self.has_operand:
            known, needed = {**constant, **dict(zip(self.before, states, strict=True))}, {self.operand}
            for node in reversed(list(self.graph.nodes)):
                needed.update(node.all_input_nodes if node in needed else ())
            self._run(known, needed.__contains__)
            initial.insert(0, known[self.operand])
        joined = gates[0] if len(gates) == 1 else torch.cat(gates, -1)
        return joined, initial, [weight, torch.cat(biases), *unit]

    def _draws(self, steps: int, constant: dict[Node, Any]) -> list[torch.Tensor]:
        """The random numbers of all steps, drawn as a loop over steps draws them."""
        if not self.random:
            return []
        (first, *others), shape = self.random, _shape(self.random[0])
        if not others and _name(first) == "randn_like" and math.prod(shape) % 16 == 0:
            # PyTorch draws 16 numbers at a time, so all steps at once are those of a loop.
            like = first.meta["val"]
            return [torch.randn(steps, *shape, dtype=like.dtype, device=like.device)]
        calls = [_draw_of(node, constant) for node in self.random]
        drawn = [[call() for call in calls] for _ in range(steps)]
        return [torch.stack(each) for each in zip(*drawn, strict=True)]


def _split_products(graph: Graph) -> None:
    """Write each product of values side by side, cat([x, h]) W, as a sum of products."""
    aten = torch.ops.aten
    for node in list(graph.nodes):
        if node.op != "call_function" or _name(node) not in ("mm", "addmm"):
            continue
        *bias, left, right = node.args
        if not isinstance(left, Node) or left.op != "call_function" or _name(left) != "cat":
            continue
        parts: Any = left.args[0]
        if list(left.args[1:]) not in ([1], [-1]) or node.kwargs:
            continue
        begin, total = 0, None
        with graph.inserting_before(node):
            for part in parts:
                end = begin + _shape(part)[1]
                rows = graph.call_function(aten.slice.Tensor, (right, 0, begin, end))
                rows.meta["val"] = right.meta["val"][begin:end]
                operands = (*bias, part, rows) if total is None else (part, rows)
                operator = aten.addmm.default if len(operands) > 2 else aten.mm.default
                term = graph.call_function(operator, operands)
                term.meta["val"] = node.meta["val"]
                if total is not None:
                    term = graph.call_function(aten.add.Tensor, (total, term))
                    term.meta["val"] = node.meta["val"]
                begin, total = end, term
        node.replace_all_uses_with(total)
        graph.erase_node(node)


def _spread(value: torch.Tensor, axes: int, batch: int, hidden: int, block: int, count: int) -> torch.Tensor:
    """`count` blocks of H columns of values of every step, (T, B, count H), from values with so many axes a
    step."""
    columns = value.shape[-1] if axes else 1
    shape = value.shape[0], *(1,) * (2 - axes), *value.shape[1:]
    reshaped = value.reshape(shape)
    if columns > 1:
        reshaped = reshaped[..., block * hidden : (block + count) * hidden]
    return reshaped.expand(-1, batch, count * hidden)


def _name(node: Any) -> str:
    """An operator's name without its overload and the mark of writing in place."""
    target: Any = node.target
    name = target.overloadpacket.__name__ if isinstance(target, torch._ops.OpOverload) else target.__name__
    return name.rstrip("_")


def _draw_of(node: Any, constant: dict[Node, Any]) -> Callable[[], torch.Tensor]:
    """A call that draws the random numbers of a step as the step itself draws them."""
    values = {
        source: constant[source].contiguous() if source in constant else _zeros_like(source)
        for source in node.all_input_nodes
    }

    def bound(values: dict[Any, torch.Tensor]) -> Callable[[], torch.Tensor]:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        return partial(node.target, *args, **kwargs)

    if node.target._schema.is_mutable:
        return lambda: bound({source: value.clone() for source, value in values.items()})()
    return bound(values)


def _zeros_like(node: Any) -> torch.Tensor:
    """In place of a value of which an operator reads the shape alone."""
    like = node.meta["val"]
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device)


def _symbol(letter: str, place: int) -> Any:
    """The symbol of a gate's input x, its recurrent sum u, a state s or a parameter p, as cells call it."""
    return sympy.Symbol(f"{letter}.{'x' if letter == 'u' else letter}{place}", real=True)


def _shape(node: Any) -> torch.Size:
    return node.meta["val"].shape

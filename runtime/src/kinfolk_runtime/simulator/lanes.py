"""Steps of ops that stay within registers: lane functions, lane permutations, markers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import numpy as np

from kinfolk.ir.meaning import LaneFunction, LanePermutation
from kinfolk.ir.numpy_lanes import Array, NumpyAlgebra
from kinfolk.ir.types import DataType, component_count, element_type
from kinfolk_runtime.simulator.sanitizers import Sanitizer
from kinfolk_runtime.simulator.source import compiled
from kinfolk_runtime.simulator.trace import PLACE, Node, Recorder, leaf, shape_of
from kinfolk_runtime.simulator.wave import Unmet, Wave

if TYPE_CHECKING:
    from kinfolk.ir.value import Operation

Step = Callable[[Wave], None]
Pick = Callable[[list[Any]], Array]
Run = Callable[[Any, list[Any]], Any]
Place = tuple[int, int]
"""An operand and a component of it."""
WHOLE: Final = -1
"""Stands for all components of an operand at once."""
_IDLE: Final = NumpyAlgebra.of_lanes(1)


def lane_function(
    op: Operation, meaning: LaneFunction, sources: Sequence[int], target: int, sanitize: frozenset[Sanitizer]
) -> Step | Array:
    """Return the step of a lane function, or its value where it is the same in every wave and every time.

    What it requires of integers is asked where someone looks for it.
    """
    types = [cast("DataType", value.type) for value in op.operands]
    kind = "integer" if all(element_type(type_).kind == "int" for type_ in types) else "float"
    groups, requires = _groups(op, meaning, kind == "float" or kind in sanitize)
    count = component_count(cast("DataType", op.results[0].type))
    parts = [_evaluator(group, types, sources) for group in groups]
    order = None if len(groups) == 1 else np.argsort([position for group in groups for position in group.positions])
    if not types and not requires and not any(_places(group.nodes[0]) for group in groups):
        return _assembled([part(_IDLE, []) for part in parts], groups, order)
    if order is None:
        (only,) = parts

        def step(w: Wave) -> None:
            try:
                data = only(w.algebra, w.registers)
            except Unmet as unmet:
                w.fail(op, kind, f"breaks its rule ({unmet.why})", unmet.lanes)
            w.registers[target] = data if data.ndim == 2 and len(data) == count else _filled(data, count)

    else:

        def step(w: Wave) -> None:
            try:
                data = [part(w.algebra, w.registers) for part in parts]
            except Unmet as unmet:
                w.fail(op, kind, f"breaks its rule ({unmet.why})", unmet.lanes)
            w.registers[target] = _assembled(data, groups, order)

    return step


def kept(step: Step, sources: Sequence[int], target: int, memory: int) -> Step:
    """Return a step that repeats its last result while its operands are the same arrays; for pure ops only."""

    def again(w: Wave) -> None:
        r = w.registers
        known = w.memory[memory]
        if known is not None and all(r[slot] is value for slot, value in zip(sources, known[1], strict=True)):
            r[target] = known[0]
            return
        step(w)
        if w.full:  # a requirement was asked of every lane
            w.memory[memory] = (r[target], [r[slot] for slot in sources])

    return again


@attrs.frozen(eq=False)
class _Group:
    """Components of the result that are computed alike: their graphs, per leaf the components read, their positions.

    `run` computes one from the algebra and the arrays of `leaves`; it is None where a leaf is handed on as it is.
    """

    nodes: list[Node]
    columns: list[list[Place]]
    positions: list[int]
    leaves: tuple[Place, ...] = ()
    run: Callable[..., Any] | None = None


_MOST_KNOWN: Final = 4096
_known: dict[tuple[Any, ...], tuple[list[_Group], bool]] = {}
"""Groups of lane functions that were traced, of which a kernel has many alike."""


def _groups(op: Operation, meaning: LaneFunction, asks: bool) -> tuple[list[_Group], bool]:
    """Return the groups of a lane function, and whether it requires anything; the same ones for ops that are alike."""
    types, results = (tuple(cast("DataType", value.type) for value in each) for each in (op.operands, op.results))
    attributes = tuple((name, type(value), repr(value)) for name, value in op.attributes.items())
    key = (meaning, types, results, attributes, asks)
    found = _known.get(key)
    if found is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[key] = _traced(op, meaning, asks)  # other threads may clear it at any time
    return found


def _traced(op: Operation, meaning: LaneFunction, asks: bool) -> tuple[list[_Group], bool]:
    recorder = Recorder()
    types = [cast("DataType", value.type) for value in op.operands]
    if meaning.form == "elementwise":
        operands = [leaf(element_type(type_), index, WHOLE) for index, type_ in enumerate(types)]
        nodes = [meaning.body(recorder, *operands, **op.attributes)]
    else:
        lists = [
            [leaf(element_type(type_), index, part) for part in range(component_count(type_))]
            for index, type_ in enumerate(types)
        ]
        results = tuple(value.type for value in op.results)
        nodes = meaning.body(recorder, *lists, result=results, **op.attributes)
    if not asks:
        recorder.requirements.clear()
    found: dict[Any, _Group] = {}
    for position, node in enumerate(nodes):
        shape = shape_of(node)
        key = position if recorder.requirements else shape.key  # a requirement names components: nothing is joined
        group = found.setdefault(key, _Group([], [[] for _ in shape.leaves], []))
        group.nodes.append(node)
        group.positions.append(position)
        for column, place in zip(group.columns, shape.leaves, strict=True):
            column.append(place)
    groups = list(found.values())
    if meaning.form == "elementwise":
        groups[0].positions.extend(range(1, component_count(cast("DataType", op.results[0].type))))
    return [_written(group, recorder) for group in groups], bool(recorder.requirements)


def _written(group: _Group, recorder: Recorder) -> _Group:
    """Return a group with its graph written as a function; one that is a leaf needs none."""
    node = group.nodes[0]
    if node.name == "leaf" and not recorder.requirements:
        return group
    leaves = _leaves([*(condition for condition, _ in recorder.requirements), node])
    return attrs.evolve(group, leaves=tuple(leaves), run=compiled(node, recorder.requirements, leaves))


def _assembled(parts: list[Array], groups: list[_Group], order: Array | None) -> Array:
    full = [_filled(part, len(group.positions)) for part, group in zip(parts, groups, strict=True)]
    return full[0] if order is None else _joined(full).take(order, axis=0)


def _places(node: Any) -> bool:
    return isinstance(node, Node) and (node.name in PLACE or any(_places(argument) for argument in node.arguments))


def _pick(column: list[Place], types: list[DataType], sources: Sequence[int]) -> Pick:
    """Return what gathers the listed components of operands as one array, by slices where they follow each other."""
    runs: list[tuple[int, list[int]]] = []
    for operand, component in column:
        if runs and runs[-1][0] == sources[operand]:
            runs[-1][1].append(component)
        else:
            runs.append((sources[operand], [component]))
    counts = {sources[operand]: component_count(types[operand]) for operand, _ in column}
    takers = [_take(slot, components, counts[slot]) for slot, components in runs]
    if len(takers) == 1:
        return takers[0]

    def join(r: list[Any]) -> Array:
        return _joined([taker(r) for taker in takers])

    return join


def _take(slot: int, components: list[int], count: int) -> Pick:
    if components == [WHOLE] or components == list(range(count)):
        return lambda r: r[slot]
    step = components[1] - components[0] if len(components) > 1 else 1
    if step > 0 and components == list(range(components[0], components[-1] + 1, step)):
        span = slice(components[0], components[-1] + 1, step)
        return lambda r: r[slot][span]
    index = np.array(components)
    return lambda r: r[slot].take(index, axis=0)


def _joined(arrays: list[Array]) -> Array:
    width = max(array.shape[1] for array in arrays)
    return np.concatenate([a if a.shape[1] == width else a.repeat(width, axis=1) for a in arrays])


def _evaluator(group: _Group, types: list[DataType], sources: Sequence[int]) -> Run:
    """Return what computes one group from the algebra and the registers, by the function its graph is written as."""
    run = group.run
    if run is None:
        pick = _pick(group.columns[0], types, sources)
        return lambda m, r: pick(r)
    columns = dict(zip(_leaves([group.nodes[0]]), group.columns, strict=True))
    picks = [_pick(columns.get(place, [place]), types, sources) for place in group.leaves]
    if len(picks) == 1:
        (pick,) = picks
        return lambda m, r: run(m, pick(r))
    if len(picks) == 2:
        pick_a, pick_b = picks
        return lambda m, r: run(m, pick_a(r), pick_b(r))
    return lambda m, r: run(m, *[pick(r) for pick in picks])


def _leaves(roots: Sequence[Node]) -> list[Place]:
    """Return the leaves below the roots in order of their first use, as `shape_of` meets them."""
    found: list[Place] = []
    seen: set[int] = set()

    def visit(node: Any) -> None:
        if not isinstance(node, Node) or id(node) in seen:
            return
        seen.add(id(node))
        if node.name == "leaf":
            found.append(cast("Place", node.arguments))
        else:
            for argument in node.arguments:
                visit(argument)

    for root in roots:
        visit(root)
    return found


def _filled(data: Array, count: int) -> Array:
    data = np.asarray(data)
    whole = data.reshape(1, -1) if data.ndim < 2 else data
    return whole if len(whole) == count else whole.repeat(count, axis=0)


def permutation(
    op: Operation, meaning: LanePermutation, sources: Sequence[int], targets: Sequence[int], size: int
) -> Step:
    """Return the step of a lane permutation; a lane outside the wave or inactive is a fault."""
    everyone = np.ones(size, np.bool_)
    whole = meaning.sources(size, everyone, **op.attributes)

    def step(w: Wave) -> None:
        r = w.registers
        chosen = whole if w.full else meaning.sources(size, w.mask, **op.attributes)
        moved: list[Array] = []
        for operand, lanes in chosen:
            _check_lanes(w, op, lanes)
            moved.append(_taken([r[slot] for slot in sources], operand, lanes))
        for target, value in zip(targets, moved, strict=True):
            r[target] = value

    return step


def _taken(values: list[Array], operand: Any, lanes: Any) -> Array:
    """Return what each lane reads: lane `lanes[l]` of one operand, or of the operand that lane l reads."""
    if isinstance(operand, int):
        value = values[operand]
        return value if value.shape[1] == 1 else value.take(lanes, axis=1)
    full = [value if value.shape[1] != 1 else value.repeat(len(lanes), axis=1) for value in values]
    return np.stack(full)[operand, :, lanes].T


def _check_lanes(w: Wave, op: Operation, lanes: Any) -> None:
    if w.full and lanes.min() >= 0 and lanes.max() < w.size:
        return
    wanted = np.asarray(lanes)[w.lanes]
    outside = (wanted < 0) | (wanted >= w.size)
    if outside.any():
        w.fail(op, "lane", f"reads lane {int(wanted[outside][0])} of a wave of {w.size}", w.lanes[outside])
    inactive = ~w.mask[wanted]
    if inactive.any():
        w.fail(op, "lane", f"reads lane {int(wanted[inactive][0])}, which is inactive", w.lanes[inactive])


def marker(sources: Sequence[int], targets: Sequence[int]) -> Step:
    """Return the step of a marker: its results are its operands."""
    pairs = list(zip(targets, sources, strict=False))

    def step(w: Wave) -> None:
        for target, source in pairs:
            w.registers[target] = w.registers[source]

    return step

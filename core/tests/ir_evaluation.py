"""Running an op's lane function on arrays, for the tests that compare it with something else."""

from __future__ import annotations

import numpy as np

from kinfolk.ir.builder import complete_attributes
from kinfolk.ir.numpy_lanes import NumpyAlgebra, NumpyLane, storage_dtype
from kinfolk.ir.ops import CORE_OPS
from kinfolk.ir.types import VectorType, component_count, element_type


def evaluate(name, types, operands, **attributes):
    """Run an op's lane function. An operand is an array [lanes], or [components, lanes] for a vector.

    Returns the result in that form, and per reason the set of lanes that break a requirement.
    """
    definition = CORE_OPS[name]
    complete = complete_attributes(definition, attributes)
    results = definition.result(tuple(types), complete)
    lanes = np.shape(operands[0])[-1] if operands else 1
    algebra = NumpyAlgebra.of_lanes(lanes)
    parts = [
        [
            NumpyLane(element_type(type_), np.asarray(row))
            for row in np.reshape(operand, (component_count(type_), lanes))
        ]
        for type_, operand in zip(types, operands, strict=True)
    ]
    with np.errstate(all="ignore"):
        if definition.meaning.form == "components":
            out = definition.meaning.body(algebra, *parts, result=results, **complete)
        else:
            out = [
                definition.meaning.body(algebra, *(p[i] if len(p) > 1 else p[0] for p in parts), **complete)
                for i in range(component_count(results[0]))
            ]
    assert all(lane.type == element_type(results[0]) for lane in out)
    assert len(out) == component_count(results[0])
    data = np.stack([np.broadcast_to(lane.data, (lanes,)) for lane in out])
    assert data.dtype == storage_dtype(element_type(results[0]))
    broken = {}
    for why, where in algebra.violations:
        broken.setdefault(why, set()).update(where.tolist())
    return (data if isinstance(results[0], VectorType) else data[0]), broken

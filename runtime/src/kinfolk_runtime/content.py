"""Checks of what index tensors hold: offsets that do not decrease, lengths, page ids inside the cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from kinfolk.contents import ContentCheck, Lengths, Offsets, PageIds
from kinfolk.errors import BindError
from kinfolk.expr import Scope
from kinfolk_runtime.tensors import Tensor


def check_content(content: ContentCheck, tensors: Mapping[str, Tensor], scope: Scope) -> None:
    """Raise BindError, naming tensor, position and value, where a tensor's contents would lead a kernel astray."""
    match content:
        case Offsets():
            _check_offsets(content, tensors, scope)
        case Lengths():
            _check_lengths(content, tensors, scope)
        case PageIds():
            _check_page_ids(content, tensors, scope)


def _check_offsets(content: Offsets, tensors: Mapping[str, Tensor], scope: Scope) -> None:
    name, count = content.tensor, content.count.integer(scope)
    values = _offsets(tensors[name], count)
    if values[0] != 0:
        raise BindError(f"{name}[0] is {values[0]}, offsets begin with 0.")
    steps, limit = np.diff(values), content.max_step.integer(scope)
    if (wrong := np.flatnonzero((steps < 0) | (steps > limit))).size:
        at = int(wrong[0])
        raise BindError(
            f"{name}[{at + 1}] - {name}[{at}] is {values[at + 1]} - {values[at]} = {steps[at]}, a length in "
            f"[0, {limit}] ({content.max_step}) is needed. Correct the offsets or dispatch for longer sequences."
        )
    if content.last is not None and values[-1] != (last := content.last.integer(scope)):
        raise BindError(f"{name}[{count}] is {values[-1]}, the last offset is {content.last} = {last}.")


def _check_lengths(content: Lengths, tensors: Mapping[str, Tensor], scope: Scope) -> None:
    values, limit = _lengths(tensors[content.tensor], content.count.integer(scope)), content.most.integer(scope)
    if (wrong := np.flatnonzero((values < 0) | (values > limit))).size:
        at = int(wrong[0])
        raise BindError(
            f"{content.tensor}[{at}] is {values[at]}, a length in [0, {limit}] ({content.most}) is needed. Correct the "
            "lengths or dispatch for longer sequences."
        )


def _check_page_ids(content: PageIds, tensors: Mapping[str, Tensor], scope: Scope) -> None:
    table = tensors[content.table].array
    rows, width = table.shape
    if content.lengths:
        lengths = _lengths(tensors[content.lengths], rows)
    else:
        lengths = np.diff(_offsets(tensors[content.offsets], rows))
    size, bound = content.page_size.integer(scope), content.bound.integer(scope)
    pages = -(-lengths // size)
    if (wrong := np.flatnonzero(pages > width)).size:
        row = int(wrong[0])
        raise BindError(
            f"{content.table} has {width} columns, sequence {row} of length {lengths[row]} needs {pages[row]} pages of "
            f"{size}. Pass a wider table."
        )
    columns = cast("npt.NDArray[np.int64]", np.arange(width))
    used = columns[None, :] < pages[:, None]
    outside = used & ((table < 0) | (table >= bound))
    if outside.any():
        row, column = (int(axis[0]) for axis in np.nonzero(outside))
        raise BindError(
            f"{content.table}[{row}, {column}] is page {table[row, column]}, ids in [0, {bound}) are needed "
            f"(sequence {row} uses {pages[row]} pages)."
        )


def _offsets(tensor: Tensor, count: int) -> npt.NDArray[Any]:
    if tensor.array.ndim != 1 or tensor.array.size < count + 1:
        raise BindError(f"{tensor.name} has shape {tensor.shape}, {count} + 1 offsets in one axis are needed.")
    return tensor.array[: count + 1].astype(np.int64)


def _lengths(tensor: Tensor, count: int) -> npt.NDArray[Any]:
    if tensor.array.ndim != 1 or tensor.array.size < count:
        raise BindError(f"{tensor.name} has shape {tensor.shape}, {count} lengths in one axis are needed.")
    return tensor.array[:count].astype(np.int64)

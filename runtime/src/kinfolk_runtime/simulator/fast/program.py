"""A kernel as code for the fast engine: words of functions' addresses, frame offsets and numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import attrs
import numpy as np
import numpy.typing as npt

from kinfolk.ir.meaning import Control, LaneFunction, LanePermutation, Matrix, MemoryAccess, ScheduleMarker
from kinfolk.ir.numpy_lanes import NumpyAlgebra
from kinfolk.ir.types import BufferType, DataType, PointerType, Type, ViewType, component_count, element_type
from kinfolk.ir.value import Kernel, Operation, Region, Value
from kinfolk_runtime.simulator.control import meeting_place
from kinfolk_runtime.simulator.entries import regions_of
from kinfolk_runtime.simulator.fast import (
    control_ops,
    lane_ops,
    memory_ops,
    products,
    race_ops,
    staging_ops,
    workgroup_ops,
)
from kinfolk_runtime.simulator.fast.lane_ops import LaneText, UnknownPermutation
from kinfolk_runtime.simulator.fast.layout import SPARE_BYTES, STAGED, component_bytes, value_bytes
from kinfolk_runtime.simulator.fast.library import LIBRARY
from kinfolk_runtime.simulator.fast.memory_ops import UnknownAccess
from kinfolk_runtime.simulator.fast.products import UnknownMatrix
from kinfolk_runtime.simulator.fast.race_ops import checks_of
from kinfolk_runtime.simulator.fast.slots import Alias, Frame, in_parallel
from kinfolk_runtime.simulator.fast.support import SUPPORT
from kinfolk_runtime.simulator.fast.text import OpText
from kinfolk_runtime.simulator.sanitizers import ALL, Sanitizer
from kinfolk_runtime.simulator.views import added_constant

_ALLOCATION_ALIGNMENT: Final = 16
_STATE_BYTES: Final = 64
Accesses = Mapping[Value, str]
"""How each parameter is declared."""
_KNOWN: dict[int, dict[Hashable, tuple[Any, Any]]] = {}
"""Texts by wave size, then by what else they depend on; the declaration is kept, so that its identity stays its own."""


class Unsupported(Exception):  # never leaves the simulator: the kernel runs in the reference engine
    """The kernel has an op that the fast engine has no function for."""


class FastProgram:
    """A kernel's code. `frame_bytes` are those of one wave; `fixed` are the values that stand in it from the start.

    `counts`: it counts how often each region is entered.
    """

    def __init__(self, kernel: Kernel, sanitize: frozenset[Sanitizer] = ALL, counts: bool = False) -> None:
        self.wave_size, self.waves = kernel.wave_size, kernel.block // kernel.wave_size
        self._texts_by_key = _KNOWN.setdefault(self.wave_size, {})
        self.workgroup_bytes = 0
        self.scratch_bytes = 0
        self._pending = self._staged_bytes = 0
        self._stands: dict[Hashable, int] = {}
        self.parameters = list(kernel.body.arguments)
        self._accesses = dict(zip(kernel.body.arguments, (one.access for one in kernel.parameters), strict=True))
        self.parallel = _is_parallel(kernel, self._accesses)
        self._allocations: dict[Value, tuple[int, int]] = {}
        self._aliases: dict[Value, Alias] = {}
        self._constants: dict[Value, list[npt.NDArray[np.uint8]]] = {}
        self._equal: dict[bytes, Value] = {}
        self._texts: dict[Operation, OpText] = {}
        self._words: list[int | OpText] = []
        self._ops: dict[int, Operation] = {}
        self._forgets: dict[Operation, tuple[int, int]] = {}
        self._flags: dict[Operation, int] = {}
        self._entries = {region: number for number, region in enumerate(regions_of(kernel))} if counts else {}
        self.region_count = len(self._entries)
        try:
            self.checks = attrs.evolve(checks_of(kernel, sanitize), counts=counts)
            self._survey(kernel.body)
            self.frame = Frame(kernel.body, self.wave_size, self._aliases, [*self.parameters, *self._constants], 0)
            self._top = self.frame.bytes
            if self.checks.places:
                self._plan_flags(kernel.body, [])
            self._plan_stagings()
            self._emit(kernel.body)
        except (UnknownPermutation, UnknownAccess, UnknownMatrix) as unknown:
            raise Unsupported(str(unknown)) from unknown
        if self._staged_bytes and self.checks.sync:
            self._words += [
                self._known("waited", partial(staging_ops.waited, self.wave_size)),
                self._pending,
            ]
        self._words.append(self._known("end", partial(control_ops.end, self.wave_size)))
        self.frame_bytes = -(-self._top // 4096) * 4096 + 64 * 5  # waves begin in different sets of the cache
        self._link()

    def op_at(self, word: int) -> Operation | None:
        """Return the op whose function stands at a word of the code."""
        return self._ops.get(word)

    def fill(self, frame: npt.NDArray[np.uint8], wave: int) -> None:
        """Write the constants of one wave into its frame."""
        for value, images in self._constants.items():
            image = images[min(wave, len(images) - 1)]
            offset = self.frame.offset(value)
            frame[offset : offset + len(image)] = image

    # What there is to know before anything has a place.

    def _survey(self, region: Region) -> None:
        for op in region.operations:
            for inner in op.regions:
                self._survey(inner)
            meaning = op.definition.meaning
            match meaning:
                case LaneFunction():
                    self._survey_lanes(op, meaning)
                case LanePermutation():
                    self._texts[op] = self._text(op, partial(lane_ops.permutation, op, meaning, self.wave_size))
                case Matrix():
                    self._texts[op] = self._text(op, partial(products.matrix, meaning, self.wave_size))
                    self.scratch_bytes = max(self.scratch_bytes, products.scratch_bytes(meaning))
                case MemoryAccess():
                    self._survey_access(op, meaning)
                case ScheduleMarker():
                    for value, source in zip(op.results, op.operands, strict=False):
                        self._aliases[value] = (source, 0)
                case Control():
                    self._survey_control(op, meaning)

    def _text(self, op: Operation, make: Callable[[], Any], *more: Hashable) -> Any:
        types = tuple(value.type for value in (*op.operands, *op.results))
        return self._known((id(op.definition), types, *op.attributes.items(), more), make, op.definition)

    def _known(self, key: Hashable, make: Callable[[], Any], kept: Any = None) -> Any:
        known = self._texts_by_key.get(key)
        if known is None:
            known = self._texts_by_key[key] = (kept, make())
        return known[1]

    def _survey_lanes(self, op: Operation, meaning: LaneFunction) -> None:
        asks = self.checks.integer
        known: LaneText = self._text(
            op, lambda: lane_ops.lane_function(op, meaning, self.wave_size, asks), "asks", asks
        )
        (result,) = op.results
        if not op.operands and not any(place.startswith("block_id") for place in known.places):
            waves = self.waves if known.places & {"wave_id", "thread_id"} else 1
            images = self._text(op, lambda: [self._image(op, meaning, wave) for wave in range(waves)], "image", waves)
            self._constant(result, images)
            return
        origins = known.origins
        if origins and all(one == (origins[0][0], origins[0][1] + n) for n, one in enumerate(origins)):
            source = op.operands[origins[0][0]]
            scalar = element_type(source.type)
            self._aliases[result] = (source, origins[0][1] * component_bytes(scalar, self.wave_size))
            return
        assert known.text is not None
        self._texts[op] = known.text

    def _constant(self, value: Value, images: list[npt.NDArray[np.uint8]]) -> None:
        key = b"".join(image.tobytes() for image in images)
        if key in self._equal:
            self._aliases[value] = (self._equal[key], 0)
            return
        self._equal[key] = value
        self._constants[value] = images

    def _image(self, op: Operation, meaning: LaneFunction, wave: int) -> npt.NDArray[np.uint8]:
        lane = np.arange(self.wave_size, dtype=np.uint32)
        thread = lane + np.uint32(wave * self.wave_size)
        algebra = NumpyAlgebra(lane, np.full_like(lane, wave), thread, (0, 0, 0), np.ones(self.wave_size, np.bool_))
        if meaning.form == "elementwise":
            parts = [meaning.body(algebra, **op.attributes)] * component_count(cast("DataType", op.results[0].type))
        else:
            parts = meaning.body(algebra, result=(op.results[0].type,), **op.attributes)
        return np.concatenate([_image_of(part.data, self.wave_size) for part in parts])

    def _survey_access(self, op: Operation, meaning: MemoryAccess) -> None:
        checks, seen = self.checks, self.checks.sanitize
        watched = meaning.space in ("global", "view") and _root_access(op.operands[0], self._accesses) != "read"
        match meaning.action:
            case "allocate":
                type_ = op.results[0].type
                assert isinstance(type_, BufferType)
                begin = -(-self.workgroup_bytes // _ALLOCATION_ALIGNMENT) * _ALLOCATION_ALIGNMENT
                self._allocations[op.results[0]] = (begin, type_.count)
                self.workgroup_bytes = begin + type_.bytes
                return
            case "offset":
                text = self._text(op, lambda: memory_ops.pointer_offset(op, self.wave_size))
            case "bound":
                text = self._text(op, lambda: memory_ops.bound(op, self.wave_size, checks), checks.memory)
            case "load" | "store" | "atomic_add" if meaning.space == "global":
                text = self._text(
                    op, lambda: memory_ops.pointer_access(op, meaning, self.wave_size, checks, watched), watched, seen
                )
            case "load" | "store" if meaning.space == "view":
                added = bool(added_constant(op))
                text = self._text(
                    op,
                    lambda: memory_ops.view_access(op, meaning, self.wave_size, checks, watched),
                    added,
                    watched,
                    seen,
                    checks.counts,
                )
            case "load" | "store" | "atomic_add" if meaning.space == "workgroup":
                if op.operands[0] not in self._allocations:
                    raise UnknownAccess(f"{op.name}: its buffer is not directly an allocation")
                self.scratch_bytes = max(self.scratch_bytes, memory_ops.Moved.of(op, meaning).bytes * self.wave_size)
                return
            case "stage":
                if op.operands[-2] not in self._allocations:
                    raise UnknownAccess(f"{op.name}: its buffer is not directly an allocation")
                source = staging_ops.source_of(op, meaning)
                self._staged_bytes = max(self._staged_bytes, source.bytes * self.wave_size)
                added = meaning.space == "view" and bool(added_constant(op))
                text = self._text(
                    op, lambda: staging_ops.stage(op, meaning, self.wave_size, checks, watched), added, watched, checks
                )
            case "wait":
                text = self._text(op, lambda: staging_ops.wait(op, self.wave_size, checks), checks)
            case _:
                raise UnknownAccess(f"{op.name}: {meaning.action} in {meaning.space} memory")
        self.scratch_bytes = max(self.scratch_bytes, SPARE_BYTES * self.wave_size)
        self._texts[op] = text

    def _survey_control(self, op: Operation, meaning: Control) -> None:
        size = self.wave_size
        match meaning.kind:
            case "any":
                count = component_count(cast("DataType", op.operands[0].type))
                self._texts[op] = self._text(op, lambda: lane_ops.any_lane(count, size))
            case "uniform":
                self._texts[op] = self._text(op, lambda: lane_ops.uniform(op.operands[0].type, size))
            case "barrier":
                self._texts[op] = self._text(op, lambda: control_ops.barrier(size, self.checks), self.checks.sync)
            case _:
                for value in op.results:
                    if isinstance(value.type, BufferType):
                        raise UnknownAccess(f"{op.name}, which gives a {value.type}: workgroup memory is not passed on")

    # Words.

    def _reserve(self, size: int) -> int:
        offset = self._top
        self._top += -(-size // 64) * 64
        return offset

    def _plan_flags(self, region: Region, loops: list[Operation]) -> None:
        """Give every access of workgroup memory whose index a loop leaves alone a word that the loop clears."""
        for op in region.operations:
            meaning = op.definition.meaning
            if (
                isinstance(meaning, MemoryAccess)
                and meaning.space == "workgroup"
                and meaning.action in ("load", "store", "atomic_add")
            ):
                around = len(self.frame.loops_around(op.operands[1]))
                if len(loops) > around:
                    self._flags[op] = -1
                    first, count = self._forgets.get(loops[around], (0, 0))
                    self._forgets[loops[around]] = (first, count + 1)
            for inner in op.regions:
                self._plan_flags(
                    inner, [*loops, op] if isinstance(meaning, Control) and meaning.kind == "for" else loops
                )
        if not loops:
            for loop, (_, count) in self._forgets.items():
                self._forgets[loop] = (self._reserve(8 * count), count)
            self._next_flag = {loop: first for loop, (first, _) in self._forgets.items()}

    def _plan_stagings(self) -> None:
        """Give stagings that are on their way a place in the frame, which none takes at first."""
        if self._staged_bytes:
            self._pending = self._reserve(staging_ops.pending_bytes(self._staged_bytes))
            self._words += [self._known("forget", partial(control_ops.forget, self.wave_size))]
            self._words += [self._pending, 1]

    def _emit(self, region: Region, loops: tuple[Operation, ...] = ()) -> None:
        if region in self._entries:
            self._words += [
                self._known("entered", partial(control_ops.entered, self.wave_size)),
                2 * self._entries[region],
            ]
        for op in region.operations:
            meaning = op.definition.meaning
            if isinstance(meaning, Control) and meaning.kind == "for":
                self._emit_loop(op, loops)
            elif isinstance(meaning, Control) and meaning.kind == "if":
                self._emit_branch(op, loops)
            elif isinstance(meaning, MemoryAccess) and meaning.action in ("stage", "wait"):
                self._emit_staging(op, meaning)
            elif isinstance(meaning, MemoryAccess) and meaning.space == "workgroup" and meaning.action != "allocate":
                self._emit_workgroup(op, meaning, loops)
            elif op in self._texts:
                more: list[int] = []
                if (
                    isinstance(meaning, MemoryAccess)
                    and meaning.space == "view"
                    and meaning.action in ("load", "store")
                ):
                    added = added_constant(op)
                    more = [added] if added else []
                if isinstance(meaning, Control) and meaning.kind == "barrier":
                    more = [self._stands.setdefault(meeting_place(op), len(self._stands) + 1)]
                self._put(op, self._texts[op], *self._offsets(op.results), *self._offsets(op.operands), *more)

    def _offsets(self, values: Sequence[Value]) -> list[int]:
        return [self.frame.offset(value) for value in values]

    def _put(self, op: Operation, text: OpText, *words: int) -> int:
        at = len(self._words)
        assert text.words == 1 + len(words), (op.name, text.words, words)
        self._ops[at] = op
        self._words += [text, *words]
        return at

    def _emit_workgroup(self, op: Operation, meaning: MemoryAccess, loops: tuple[Operation, ...]) -> None:
        begin, count = self._allocations[op.operands[0]]
        words = workgroup_ops.place_words(op, meaning, begin, count)
        remembers = op in self._flags
        size, checks = self.wave_size, self.checks
        text = self._text(
            op, lambda: workgroup_ops.workgroup_access(op, meaning, size, remembers, checks), remembers, checks
        )
        flag: list[int] = []
        if remembers:
            loop = loops[len(self.frame.loops_around(op.operands[1]))]
            flag = [self._next_flag[loop]]
            self._next_flag[loop] += 8
        self._put(op, text, *self._offsets(op.results), *self._offsets(op.operands[1:]), *words, *flag)

    def _emit_staging(self, op: Operation, meaning: MemoryAccess) -> None:
        text, entry = self._texts[op], staging_ops.entry_bytes(self._staged_bytes)
        if meaning.action == "wait":
            if self._staged_bytes:
                self._put(op, text, self._pending, entry)
            return
        *source, buffer, start = op.operands
        words = [self._pending, entry, *staging_ops.place_words(op, *self._allocations[buffer])]
        added = added_constant(op) if meaning.space == "view" else 0
        self._put(op, text, *self._offsets((*source, start)), *([added] if added else []), *words)

    def _emit_loop(self, op: Operation, loops: tuple[Operation, ...]) -> None:
        (region,) = op.regions
        counter, *carried = region.arguments
        state = self._reserve(_STATE_BYTES)
        self._move(op, list(zip(carried, op.operands[3:], strict=True)))
        if op in self._forgets:
            forget = self._known("forget", partial(control_ops.forget, self.wave_size))
            self._put(op, forget, *self._forgets[op])
        begin = self._put(
            op,
            self._known(("loop", self.checks), partial(control_ops.loop, self.wave_size, self.checks)),
            *self._offsets(op.operands[:3]),
            state,
            self.frame.offset(counter),
            0,
        )
        body = len(self._words)
        self._emit(region, (*loops, op))
        self._move(op, list(zip(carried, region.operations[-1].operands, strict=True)))
        again = partial(control_ops.next_round, self.wave_size, self.checks)
        next_round = self._known(("next round", self.checks), again)
        end = self._put(op, next_round, state, self.frame.offset(counter), 0)
        self._words[end + 3] = body - end
        self._words[begin + 6] = len(self._words) - begin

    def _emit_branch(self, op: Operation, loops: tuple[Operation, ...]) -> None:
        state = self._reserve(_STATE_BYTES)
        text = self._known("branch", partial(control_ops.branch, self.wave_size))
        begin = self._put(op, text, self.frame.offset(op.operands[0]), state, 0)
        other = 0
        for side, region in enumerate(op.regions):
            if side:
                text = self._known("otherwise", partial(control_ops.otherwise, self.wave_size))
                other = self._put(op, text, state, 0)
                self._words[begin + 3] = other - begin
            self._emit(region, loops)
            pairs = list(zip(op.results, region.operations[-1].operands, strict=True))
            compared = [(result, value) for result, value in pairs if side and isinstance(result.type, ViewType)]
            others = [(result, value) for result, value in pairs if not (side and isinstance(result.type, ViewType))]
            self._move(op, others, merges=True)
            for target, source in compared:
                text = self._known("joined view", partial(memory_ops.joined_view, self.wave_size))
                self._put(op, text, *self._offsets((target, source)), state)
        self._put(op, self._known("joined", partial(control_ops.joined, self.wave_size)), state)
        self._words[other + 2] = len(self._words) - other

    def _move(self, op: Operation, pairs: Sequence[tuple[Value, Value]], merges: bool = False) -> None:
        """Write copies of values to places, as if all at once; in a branch on its lanes alone."""
        frame = self.frame
        types: dict[tuple[int, int], Type] = {}
        moves: list[tuple[int, int, int]] = []
        for target, source in pairs:
            move = (frame.offset(target), frame.offset(source), value_bytes(target.type, self.wave_size))
            types[move[:2]] = target.type
            moves.append(move)
        by_target = {move[0]: types[move[:2]] for move in moves}
        for target, source, size in in_parallel(moves, self._reserve):
            type_ = by_target.get(target)
            if merges and type_ is not None and not isinstance(type_, ViewType):
                text = self._known(("merge", type_), partial(lane_ops.merge, type_, self.wave_size))
            else:
                text = self._known(("copy", size), partial(lane_ops.copy, size, self.wave_size))
            self._put(op, text, target, source)

    def _link(self) -> None:
        texts = [word for word in self._words if isinstance(word, OpText)]
        runner = self._known(("runner", self.checks), partial(control_ops.runner, self.wave_size, self.checks))
        addresses = LIBRARY.addresses([*texts, runner], {**SUPPORT, **staging_ops.SUPPORT, **race_ops.SUPPORT})
        self.run_address = addresses[runner.name]
        self.code = np.array(
            [addresses[word.name] if isinstance(word, OpText) else word for word in self._words], np.int64
        )
        self.scratch_size = STAGED + self.scratch_bytes + 64
        self._words, self._texts = [], {}


def _image_of(data: Any, lanes: int) -> npt.NDArray[np.uint8]:
    """Return one component on all lanes as it lies in a frame."""
    whole = np.ascontiguousarray(np.broadcast_to(data, (lanes,)))
    if whole.dtype == np.bool_:
        bits = np.zeros(8, np.uint8)
        packed = np.packbits(whole, bitorder="little")
        bits[: len(packed)] = packed
        return bits
    return whole.view(np.uint8)


def _is_parallel(kernel: Kernel, accesses: Accesses) -> bool:
    """Whether workgroups can run at once with the results of one after the other.

    Not with floats added to memory, nor where a kernel loads from what it also writes.
    """
    shared = any(one.is_pointer and one.access == "readwrite" for one in kernel.parameters)
    for op in kernel.walk():
        meaning = op.definition.meaning
        if not isinstance(meaning, MemoryAccess) or meaning.space == "workgroup":
            continue
        if meaning.action == "atomic_add" and str(op.operands[-1].type) != "i32":
            return False
        if shared and meaning.action in ("load", "stage") and _root_access(op.operands[0], accesses) == "readwrite":
            return False
    return True


def _root_access(value: Value, accesses: Accesses) -> str:
    """Return how the parameter that an address comes from is declared; "readwrite" where that is not seen."""
    while (made := value.defining_op) is not None and isinstance(made.definition.meaning, MemoryAccess):
        value = made.operands[0]
    return accesses.get(value, "readwrite") if made is None and isinstance(value.type, PointerType) else "readwrite"


__all__ = ["FastProgram", "Unsupported"]

"""The main loop of a kernel, and which of its blocks are cold: entered in few rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import attrs

from kinfolk.lowering.function import COLD_BLOCK
from kinfolk.machine import Block, Instruction
from kinfolk_runtime.inspection.flow import Flow

ColdRule = Literal["named", "layout"]
"""How cold blocks are known: by the name that lowering gave them, or by where the compiler put them."""


@attrs.frozen(kw_only=True)
class Loop:
    """The blocks of a loop in the order of the code, the cold ones among them, and the rule they are known by."""

    header: str
    blocks: tuple[Block, ...]
    cold: tuple[Block, ...]
    rule: ColdRule

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """The instructions of all blocks: those of a round that takes every one of them."""
        return _joined(self.blocks)

    @property
    def hot(self) -> tuple[Instruction, ...]:
        """The instructions of all blocks but the cold ones."""
        return _joined(block for block in self.blocks if block not in self.cold)


def main_loop(blocks: Sequence[Block], *, rule: ColdRule | None = None) -> Loop | None:
    """Return the loop that has the most matrix instructions and no other loop with some inside; None without one.

    Of loops without any matrix instruction, it is the largest innermost one. Unless `rule` says how its cold blocks are
    known, they are by name where the function has one of such a name.
    """
    if not blocks:
        return None
    flow = Flow.of(blocks)
    loops = flow.loops()
    weights = {header: _matrix_count(blocks, body) for header, body in loops.items()}
    if any(weights.values()):
        loops = {header: body for header, body in loops.items() if weights[header]}
    inner = [header for header, body in loops.items() if not any(other < body for other in loops.values())]
    if not inner:
        return None
    header = max(inner, key=lambda each: (weights[each], _instruction_count(blocks, loops[each]), -each))
    body = sorted(loops[header])
    if rule is None:
        rule = "named" if any(map(_is_named, blocks)) else "layout"
    if rule == "named":
        cold = _led_to(flow, loops[header], header, {number for number in body if _is_named(blocks[number])})
    else:
        cold = _out_of_line(flow, blocks, body, header)
    return Loop(
        header=blocks[header].label,
        blocks=tuple(blocks[number] for number in body),
        cold=tuple(blocks[number] for number in sorted(cold)),
        rule=rule,
    )


def _is_named(block: Block) -> bool:
    return block.source.partition(".")[0] == COLD_BLOCK


def _led_to(flow: Flow, body: frozenset[int], header: int, named: set[int]) -> set[int]:
    """Return the named blocks, those that only they lead to, and those that lead to nothing else."""
    cold = {number for number in body if any(flow.dominates(each, number) for each in named)}
    grown = True
    while grown:
        grown = False
        for number in body - cold - {header}:
            if flow.following[number] and all(each in cold for each in flow.following[number]):
                cold.add(number)
                grown = True
    return cold


def _out_of_line(flow: Flow, blocks: Sequence[Block], body: Sequence[int], header: int) -> set[int]:
    """Return the blocks behind the last jump back that have no matrix instruction and that a round can do without.

    That is where compilers put what branch weights call rare, so that the loop runs straight through.
    """
    latches = [number for number in body if header in flow.following[number]]
    return {
        number
        for number in body
        if number > max(latches)
        and not _matrix_count(blocks, [number])
        and not all(flow.dominates(number, latch) for latch in latches)
    }


def _joined(blocks: Iterable[Block]) -> tuple[Instruction, ...]:
    return tuple(instruction for block in blocks for instruction in block.instructions)


def _matrix_count(blocks: Sequence[Block], numbers: Iterable[int]) -> int:
    return sum(each.issue == "matrix" for number in numbers for each in blocks[number].instructions)


def _instruction_count(blocks: Sequence[Block], numbers: Iterable[int]) -> int:
    return sum(len(blocks[number].instructions) for number in numbers)

"""The checks of the conformance kit that compile kernels and run them; core has those that do neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kinfolk.testing.check import Check

if TYPE_CHECKING:
    from kinfolk.testing.check import Outcome
    from kinfolk.testing.subject import Subject

# Each module is imported when its check is run: what lists checks imports no compiler.


def _compiled(subject: Subject) -> Outcome:
    from kinfolk_runtime.conformance.compiled import compiled

    return compiled(subject)


def _goldens(subject: Subject) -> Outcome:
    from kinfolk_runtime.conformance.compiled import goldens

    return goldens(subject)


def _no_goldens(subject: Subject) -> str:
    from kinfolk_runtime.conformance.compiled import no_goldens

    return no_goldens(subject)


def _reference(subject: Subject) -> Outcome:
    from kinfolk_runtime.conformance.runs import reference

    return reference(subject)


def _sanitizers(subject: Subject) -> Outcome:
    from kinfolk_runtime.conformance.runs import sanitizers

    return sanitizers(subject)


def _engines(subject: Subject) -> Outcome:
    from kinfolk_runtime.conformance.runs import engines

    return engines(subject)


def _binding(subject: Subject) -> Outcome:
    from kinfolk_runtime.conformance.binding import binding

    return binding(subject)


def _mutation(subject: Subject) -> Outcome:
    from kinfolk_runtime.conformance.mutants import mutation

    return mutation(subject)


CHECKS: Final = (
    Check(
        name="compile",
        proves="kernels compile and pass the gate: no scratch, within the budgets of candidate and arch",
        needs="compile",
        run=_compiled,
    ),
    Check(
        name="goldens",
        proves="kernels are what was last approved of, of every flavor",
        needs="compile",
        run=_goldens,
        applies=_no_goldens,
    ),
    Check(
        name="reference",
        proves="outputs are within tolerance of the fp64 reference on every scenario, nothing to do included",
        needs="simulate",
        run=_reference,
    ),
    Check(
        name="sanitizers",
        proves="no run reads what nobody wrote, leaves its memory, races, overflows or leaves outputs unwritten",
        needs="simulate",
        run=_sanitizers,
    ),
    Check(
        name="engines",
        proves="both engines of the simulator give the same bits",
        needs="simulate",
        run=_engines,
    ),
    Check(
        name="binding",
        proves="a tensor of a wrong type, shape, stride, alignment or place, missing, extra or shared, is refused",
        needs="simulate",
        run=_binding,
    ),
    Check(
        name="mutation",
        proves="mistakes put into kernels are noticed by scenarios, sanitizers or analyses, or change no code",
        level="full",
        needs="simulate",
        run=_mutation,
    ),
)

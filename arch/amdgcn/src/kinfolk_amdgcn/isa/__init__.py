"""Machine code run on this host: decoded, each instruction declared once, waves in lockstep, rules of the machine kept.

The stages, in order: `encoding` takes words apart; `declare` says how an instruction is declared, in the tables of
`vector_alu`, `scalar_alu`, `special_steps`, `matrix_steps`, `local_steps`, `memory_steps`, `cache_steps`,
`flow_steps` and `code_steps`; `program` makes steps of a kernel's code; `engine` runs them on the state in `waves` and
`local_memory`.
"""

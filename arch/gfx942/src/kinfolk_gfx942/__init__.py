"""The arch gfx942 (AMD Instinct MI300): its facts, its matrix atoms and its gates."""

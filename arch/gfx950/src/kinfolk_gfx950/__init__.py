"""The arch gfx950 (AMD Instinct MI350): its facts, its matrix atoms, its own ops and its gates."""

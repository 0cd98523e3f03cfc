"""A family that is right and unlike any other: what a check holds against it, it holds wrongly."""

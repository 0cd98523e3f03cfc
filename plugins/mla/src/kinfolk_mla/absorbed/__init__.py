"""Projected queries served over latent rows: absorbed before attention, its outputs projected after."""

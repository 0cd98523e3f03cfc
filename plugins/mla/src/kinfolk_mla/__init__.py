"""Multi-head latent attention over a paged cache: requests, kernels and reference, as a plugin of kinfolk."""

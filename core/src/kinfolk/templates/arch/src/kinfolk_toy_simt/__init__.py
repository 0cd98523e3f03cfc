"""A made-up machine that runs waves of 32 lanes, as a plugin of kinfolk."""

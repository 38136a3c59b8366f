"""Foreign bytes are parsed here, in processes that can be killed: `pool` is the interface."""

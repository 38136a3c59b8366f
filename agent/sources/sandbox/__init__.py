"""Foreign bytes are read here, in processes that can be killed: `pool` is the face."""

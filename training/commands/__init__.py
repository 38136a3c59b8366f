"""The subcommands of training, one module each, loaded when they are called."""

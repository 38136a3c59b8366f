"""The subcommands of `rubricem` that collect, export and train."""

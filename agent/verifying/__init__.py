"""Claims against the passages they cite: the checkers, and what is done about what fails."""

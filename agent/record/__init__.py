"""What people find again: past runs, and the conversations that they belong to."""

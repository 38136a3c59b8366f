"""Whole pages of the web, read safely: addresses checked, sizes bounded, text extracted."""

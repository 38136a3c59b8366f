"""Rows of token ids: returns and advantages by stage, imitation, and their export."""

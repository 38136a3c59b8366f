"""A trajectory as people and programs read it: citations, report, page, live view."""

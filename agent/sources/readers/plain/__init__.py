"""Kinds of files that are text with marks: light markups, TeX, RTF, data, subtitles, archives.

Those that know headings, lists and tables are written as HTML first (`writing.py`), and so are read
by the same rules as a page: superscripts, notes, formulas and tables alike.
"""

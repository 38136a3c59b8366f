"""Evaluation of any model, source and question file in one way: arms, grades, rows, results."""

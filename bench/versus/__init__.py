"""Ottla and its peers under the same loads, in turns, as one table of ratios."""

"""Looks at a log from outside, while nobody writes to it: a view for people, and a proof."""

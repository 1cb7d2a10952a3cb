"""Breaks things on purpose, and judges what clients saw."""

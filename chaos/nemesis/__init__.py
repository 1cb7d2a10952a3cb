"""Breaks what runs, as a plan says, and mends it again."""

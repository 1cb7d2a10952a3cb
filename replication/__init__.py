"""The log on disk and, later, its copies."""

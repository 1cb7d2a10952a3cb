"""Compaction: of every key, the last value stays."""

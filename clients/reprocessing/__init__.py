"""Handlers that may fail: retry topics of growing delay, and a dead-letter topic."""

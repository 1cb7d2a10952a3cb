"""Pipelines declared in a file and run on Spark: sources, steps, sinks."""

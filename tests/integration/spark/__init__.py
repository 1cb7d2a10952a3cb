"""The Spark source, sink and pipelines: a real node, and real Spark on this machine."""

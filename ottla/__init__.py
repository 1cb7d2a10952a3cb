"""Ottla: a replicated commit log that speaks the Kafka protocol."""

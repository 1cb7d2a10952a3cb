"""Clients that others wrote, each of which must work without knowing that a node is not Kafka."""

"""The Kafka wire format: its APIs, its headers, and how a body is read and written."""

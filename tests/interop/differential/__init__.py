"""The same requests to our node and to a Kafka node, and the two answers side by side."""

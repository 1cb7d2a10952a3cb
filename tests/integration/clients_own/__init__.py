"""Our own clients against three of our nodes, and the same tests against Apache Kafka."""

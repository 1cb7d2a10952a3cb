"""Our own clients, against our own nodes and against Apache Kafka: the same tests."""

"""The CLIENT listener: Kafka's protocol, spoken to any Kafka client."""

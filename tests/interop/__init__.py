"""Apache Kafka as the judge: it reads our files, we read its, and its answers are recorded."""

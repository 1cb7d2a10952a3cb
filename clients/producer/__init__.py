"""The producer: records gathered into batches, sent in order, and each outcome told once."""

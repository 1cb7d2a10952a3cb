"""The consumer: from a subscription to records, alone or in a group."""

"""A real Prometheus looks at real nodes (`make observe`)."""

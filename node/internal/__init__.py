"""What nodes say to one another, over gRPC."""

"""What nodes say to one another, over gRPC."""

import os

# Read by gRPC when it is first imported. Its own lines on standard error are no lines of our log,
# and strangers could cause them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

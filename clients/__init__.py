"""Producer, consumer and admin: the faces that people use."""

"""Small programs on our client library, to be read, run and changed."""

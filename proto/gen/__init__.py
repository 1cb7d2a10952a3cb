"""Generated from the `.proto` files beside this folder by `make protos`; never edited."""

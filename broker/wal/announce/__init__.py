"""The metadata topic: telling of objects and hearing of them."""

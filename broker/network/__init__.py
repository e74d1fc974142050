"""Listeners, byte streams and the client side of a connection: TCP without a word of what is said over it."""

"""When objects are deleted."""

"""Metrics: one group per area, created once and passed in; there is no global registry."""

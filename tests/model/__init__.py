"""A model of one partition that is replicated through the bucket, and what searches it for broken promises."""

"""KIP-1176: replicas take the bytes of active segments from the bucket of the leader's zone."""

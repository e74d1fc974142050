"""What a leader puts into the bucket, and what it does when the bucket does not serve."""

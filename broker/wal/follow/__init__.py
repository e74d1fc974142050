"""What a follower takes from buckets, and when it may append it."""

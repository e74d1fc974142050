"""The log cleaner: keeps the newest record of each key in topics with cleanup.policy=compact."""

"""Object storage behind one port: S3, S3 Express One Zone, a shared directory; and what belongs around each of them."""

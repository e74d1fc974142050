"""The page a browser gets at metrics.http.listener: what this broker does, and the cluster as it knows it."""

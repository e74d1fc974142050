"""What the cluster knows about itself: immutable images, the deltas that lead from one to the next, and who reads them.

Images are replaced, never changed: a reader that holds one sees one consistent cluster.
"""

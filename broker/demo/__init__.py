"""`wherry demo`: a small cluster in processes of its own, a load on it, and a board of what it does and costs.

Nothing in here is part of a broker: brokers are started as `wherry server`, and spoken to by Kafka's protocol and HTTP.
"""

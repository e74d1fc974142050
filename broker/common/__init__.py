"""What everything else stands on: identifiers, errors and the ports to time, chance, disk and tasks.

Nothing here imports another package of ours.
"""

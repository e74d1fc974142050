"""KIP-405: closed segments live in standard object storage, local disks keep the newest."""

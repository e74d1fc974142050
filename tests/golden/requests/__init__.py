"""360 requests of eight real clients, each without its length in front: k<key>_v<version>_<client>_<number>.bin."""

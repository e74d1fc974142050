"""Settings: one definition each, from which parsing, DescribeConfigs and the manual are made."""

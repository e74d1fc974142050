"""What a cluster will do and cost, before there is one."""

"""What an object is: slices, table, name; and what is known of one."""

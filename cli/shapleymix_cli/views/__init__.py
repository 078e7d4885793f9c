"""What people see of each result: text and tables, with rounded numbers."""

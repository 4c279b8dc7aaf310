"""What a drill does to a site from inside, through doors that other runs do not have."""

"""Values of users in the types of Arrow: as they are, or refused."""

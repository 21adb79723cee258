"""Ships on a page: maps of scenarios, and what policies do at each budget."""

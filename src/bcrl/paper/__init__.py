"""The paper's numbers as data (`published`) and its synthetic figure (`synthetic`)."""
